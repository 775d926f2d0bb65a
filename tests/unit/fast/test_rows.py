"""A Transformer on bins, as on a GPU: the loss, the gradient, and what is compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from nmt_cli.annexes.later.settings import (
    AlibiAttentionConfig,
    RestrictedAttentionConfig,
    RotaryAttentionConfig,
)
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.criteria.settings import LabelSmoothingConfig
from nmt_cli.data.batching import collate
from nmt_cli.fast import rows
from nmt_cli.fast.cuda import bins as cuda_bins
from nmt_cli.fast.cuda.bins import binned
from nmt_cli.fast.cuda.device import Fast
from nmt_cli.interfaces import PAD, Batch, Criterion, ragged
from nmt_cli.models.transformer import Transformer

GPU = Fast(torch.device("cuda"))  # whose modules compute on a CPU, too
CRITERION = LabelSmoothedCrossEntropy(LabelSmoothingConfig())
PLAIN = LabelSmoothedCrossEntropy(LabelSmoothingConfig())
GPU.fit(torch.nn.Module(), CRITERION)


def fitted(model: Transformer) -> Transformer:
    GPU.fit(model)
    return model


def batches(sentences: int, seed: int = 0, longest: int = 12) -> tuple[Batch, Batch]:
    """Return random pairs of up to `longest` words, padded and in bins."""
    random = np.random.default_rng(seed)
    sides = [
        [random.integers(4, 20, n) for n in random.integers(1, longest + 1, sentences)]
        for _ in range(2)
    ]
    return collate(*sides), binned(*map(ragged, sides))


def loss_and_gradients(
    model: Transformer, given: Batch, criterion: Criterion = CRITERION
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = criterion(model, given).total
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach(), {
        name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
    }


def same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)


def graphs(counter: CompileCounterWithBackend) -> int:
    """Return how many graphs were compiled. Empty ones do not count."""
    return sum(len(module.graph.nodes) > 0 for module in counter.graphs)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"norm": "pre", "positions": "learned", "max_positions": 5, "output_bias": True},
        {"attention": RotaryAttentionConfig(), "positions": "none", "activation": "gelu"},
        {"attention": RestrictedAttentionConfig(neighbourhood=4), "d_k": 3, "d_v": 5},
    ],
)
def test_bins_are_padded_sentences(
    build: Callable[..., Transformer], fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss and every gradient, to rounding.

    Each bin has several sentences, and the last one has none.
    """
    monkeypatch.setattr(cuda_bins, "WIDTH", 64)
    plain, model = build(d_model=32, **fields), fitted(build(d_model=32, **fields))
    padded, bins = batches(526)
    assert len(bins.source) == 66
    assert not bins.source[-1].any()
    expected, actual = loss_and_gradients(plain, padded, PLAIN), loss_and_gradients(model, bins)
    same(actual, expected)
    assert CRITERION(model, bins).num_tokens == padded.num_tokens
    with torch.no_grad():
        same(CRITERION(model, bins).nll, PLAIN(plain, padded).nll)


@pytest.mark.parametrize(
    ("attention", "packed"), [(RotaryAttentionConfig(), True), (AlibiAttentionConfig(), False)]
)
def test_each_kind_of_layer_is_compiled_once(
    build: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch, attention: Any, packed: bool
) -> None:
    """Without a break, for any sentences, and for other shapes. And once more for validation."""
    model, plain = (fitted(build(attention, d_model=32, num_layers=2)).train() for _ in range(2))
    counter = CompileCounterWithBackend("aot_eager" if packed else "eager")
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, fullgraph=True, backend=counter))
    GPU.compile(model, Criterion(), wanted=True)
    compiled = []  # on a CPU, rows of fewer than 16 would be another graph
    for sentences, seed, longest in ((60, 0, 20), (60, 1, 20), (150, 2, 20), (30, 3, 140)):
        given = batches(sentences, seed, longest)[packed]
        actual, expected = loss_and_gradients(model, given), loss_and_gradients(plain, given)
        same(actual, expected)
        compiled.append(graphs(counter))
    assert compiled == [2] * 4
    model.eval()
    with torch.no_grad():
        for sentences in (40, 70):
            given = batches(sentences)[packed]
            same(CRITERION(model, given).total, CRITERION(plain, given).total)
    assert graphs(counter) == 4


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_hidden_states_of_a_gpu(build: Callable[..., Transformer], norm: str) -> None:
    """They have the type of products, and only rounding differs."""
    model, given = fitted(build(d_model=32, norm=norm)), batches(60)[1]
    model.train()
    seen: list[torch.dtype] = []
    for layer in (*model.encoder, *model.decoder):
        layer.register_forward_hook(lambda layer, inputs, output: seen.append(output.dtype))
    expected = loss_and_gradients(model.eval(), given)  # its feed-forward layers are plain
    same(loss_and_gradients(model.train(), given), expected)
    assert set(seen) == {torch.float32}
    seen.clear()
    with torch.autocast("cpu", torch.bfloat16):
        actual = loss_and_gradients(model, given)
    assert set(seen) == {torch.bfloat16}
    torch.testing.assert_close(actual[0], expected[0], rtol=0.01, atol=0)
    for name, gradient in expected[1].items():
        assert (actual[1][name] - gradient).norm() < 0.15 * gradient.norm(), name


def test_which_attention_is_computed_in_bins(build: Callable[..., Transformer]) -> None:
    def takes_bins(attention: Any = None, **fields: Any) -> bool:
        return rows.takes_bins(fitted(build(attention, d_model=32, **fields)))

    assert takes_bins(attention_dropout=0.1)
    assert takes_bins(RotaryAttentionConfig())
    assert not takes_bins(AlibiAttentionConfig())
    assert not rows.takes_bins(build(d_model=32))  # its lines are the core's


def test_a_model_with_embeddings_of_its_own_keeps_them(build: Callable[..., Transformer]) -> None:
    class Doubled(Transformer):
        def embed(self, *arguments: Any) -> torch.Tensor:
            return 2 * super().embed(*arguments)

    plain, padded = build(), batches(5)[0]
    plain.__class__ = Doubled
    output = plain.decoder_output(padded.source, padded.target_in)
    model = build()
    model.__class__ = Doubled
    same(fitted(model).decoder_output(padded.source, padded.target_in), output)
    hidden, targets = CRITERION.outputs(model, padded)
    same(hidden[: len(targets)], output[padded.target_out != PAD])
    assert not rows.takes_bins(model)


def test_a_model_with_lines_of_its_own_keeps_them(build: Callable[..., Transformer]) -> None:
    class Doubled(Transformer):
        def decoder_output(self, *arguments: Any) -> torch.Tensor:
            return 2 * super().decoder_output(*arguments)

    plain, padded = build(), batches(5)[0]
    model = build()
    model.__class__ = Doubled
    output = 2 * plain.decoder_output(padded.source, padded.target_in)
    same(fitted(model).decoder_output(padded.source, padded.target_in), output)
    hidden, targets = CRITERION.outputs(model, padded)
    same(hidden[: len(targets)], output[padded.target_out != PAD])
