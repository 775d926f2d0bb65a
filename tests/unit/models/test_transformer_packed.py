"""A Transformer on a packed batch, as on a GPU: the loss, the gradient, and what is compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch._dynamo.testing import CompileCounterWithBackend

from nmt_cli.commands.train_setup import compile_layers
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy, LabelSmoothingConfig
from nmt_cli.data.batching import collate
from nmt_cli.interfaces import Batch, ComputesRows
from nmt_cli.models.transformer import Transformer
from nmt_cli.packing import Packing
from nmt_cli.positions.alibi_attention import AlibiAttentionConfig
from nmt_cli.positions.rotary_attention import RotaryAttentionConfig

pytestmark = pytest.mark.usefixtures("variable_length_kernel")

CRITERION = LabelSmoothedCrossEntropy(LabelSmoothingConfig())


def batch(sentences: int, seed: int = 0) -> Batch:
    """Return random pairs of 1 to 12 words, packed for a kernel that needs the sentences' starts."""
    random = np.random.default_rng(seed)

    def side() -> list[NDArray[Any]]:
        return [random.integers(4, 20, length) for length in random.integers(1, 13, sentences)]

    padded = collate(side(), side())

    def with_starts(packing: Packing) -> Packing:
        lengths = torch.bincount(packing.places // packing.shape[1]).numpy()
        return Packing.of_lengths(lengths, packing.shape[1], starts=True)

    return replace(
        padded,
        source_packing=with_starts(padded.source_packing),
        target_packing=with_starts(padded.target_packing),
    )


def loss_and_gradients(model: Transformer, given: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = CRITERION(model, given).total
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def same(ours: Any, expected: Any) -> None:
    torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-4)


def graphs(counter: CompileCounterWithBackend) -> int:
    """Return how many graphs were compiled; empty ones do not count."""
    return sum(len(module.graph.nodes) > 0 for module in counter.graphs)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"norm": "pre", "positions": "learned", "max_positions": 5},
        {"attention": RotaryAttentionConfig(), "positions": "none", "activation": "gelu"},
    ],
)
def test_packed_is_padded(made: Callable[..., Transformer], fields: dict[str, Any]) -> None:
    model = made(d_model=32, **fields)
    packed = batch(30)
    padded = replace(
        packed,
        source_packing=replace(packed.source_packing, starts=None),
        target_packing=replace(packed.target_packing, starts=None),
    )
    ours, expected = loss_and_gradients(model, packed), loss_and_gradients(model, padded)
    same(ours, expected)
    total = torch.nn.functional.cross_entropy(
        model(packed.source, packed.target_in).flatten(0, 1),
        packed.target_out.flatten(),
        ignore_index=0,
        label_smoothing=0.1,
        reduction="sum",
    )
    same(ours[0], total.detach())


def test_each_kind_of_layer_is_compiled_once(made: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch) -> None:
    """As a whole, without a break, for any numbers of rows and sentences; and once more for validation.

    Rotary attention is full attention after a rotation.
    """
    model, plain = (made(RotaryAttentionConfig(), d_model=32, num_layers=3) for _ in range(2))
    counter = CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, fullgraph=True, backend=counter))
    compile_layers([*model.encoder, *model.decoder], lambda model, batch: CRITERION(model, batch))
    compiled = []
    for sentences in (30, 60, 25, 90, 150):
        given = batch(sentences, seed=sentences)
        ours, expected = loss_and_gradients(model, given), loss_and_gradients(plain, given)
        same(ours, expected)
        compiled.append(graphs(counter))
    assert compiled == [2, 2, 2, 2, 2]
    model.eval()
    with torch.no_grad():
        for sentences in (40, 70, 20):
            same(CRITERION(model, batch(sentences)).total, CRITERION(plain, batch(sentences)).total)
    assert graphs(counter) == 4


def test_what_it_computes_on_rows(made: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    model, device = made(d_model=32), torch.device("cuda")
    assert isinstance(model, ComputesRows)
    assert model.packed_layers(device, torch.bfloat16) == [*model.encoder, *model.decoder]
    assert model.packed_layers(device, torch.float32) is None
    assert made(d_model=32, attention_dropout=0.1).packed_layers(device, torch.bfloat16) is None
    assert made(AlibiAttentionConfig(), d_model=32).packed_layers(device, torch.bfloat16) is None
    assert model.packed_layers(torch.device("cpu"), torch.bfloat16) is None
