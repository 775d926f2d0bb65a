"""Checks of the exercises, most of them against the functions of nmt.

The module that is checked is `exercises.py`, or the one that NMT_BOOK_ANSWERS names.
"""

from __future__ import annotations

import importlib.util
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli import registry
from nmt_cli.criteria.label_smoothed_cross_entropy import smoothed_cross_entropy
from nmt_cli.data.batching import collate
from nmt_cli.decoding import beam_search
from nmt_cli.decoding.length_penalty import length_penalty
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.interfaces import BOS, EOS
from nmt_cli.layers.attention import AttentionMask, FullAttention
from nmt_cli.layers.embedding import sinusoids
from nmt_cli.layers.settings import FullAttentionConfig
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.optim.inverse_sqrt import InverseSqrt, InverseSqrtConfig


def load(name: str) -> Any:
    """The module `name` beside this file."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


answers = load(os.environ.get("NMT_BOOK_ANSWERS", "exercises"))


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def transformer(V: int, **sizes: Any) -> Any:
    registry.discover()
    vocabulary = {
        "source_vocabulary_size": V,
        "target_vocabulary_size": V,
        "shared_vocabulary": True,
    }
    torch.manual_seed(1)
    return registry.build(TransformerConfig(**sizes), attention=FullAttentionConfig(), **vocabulary)


def test_shifted() -> None:
    batch = collate([[7]], [[17, 42, 8]])
    expected = batch.target_in[0].tolist(), batch.target_out[0].tolist()
    assert tuple(map(list, answers.shifted([17, 42, 8], BOS, EOS))) == expected


def test_merged() -> None:
    assert answers.merged([["a", "b", "a", "b"], ["c", "a", "b"]]) == [["ab", "ab"], ["c", "ab"]]
    assert answers.merged([["a", "a", "a"], ["b"]]) == [["aa", "a"], ["b"]]
    assert answers.merged([["th", "e"], ["th", "e"], ["th", "is"]]) == [
        ["the"],
        ["the"],
        ["th", "is"],
    ]


@pytest.mark.parametrize("position", [0, 1, 50])
def test_positional_encoding(position: int) -> None:
    expected = sinusoids(position, 1, 16)[0].tolist()
    assert answers.positional_encoding(position, 16) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("k", [0, 1, 7])
def test_shift_matrix(k: int) -> None:
    matrix = answers.shift_matrix(k, 16)
    torch.testing.assert_close(
        sinusoids(0, 30, 16) @ matrix.T, sinusoids(k, 30, 16), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_attention(size: float) -> None:
    query, key, value = draw(5, 8) * size, draw(7, 8) * size, draw(7, 3)
    expected = FullAttention()(
        query[None, None], key[None, None], value[None, None], AttentionMask()
    )[0, 0]
    torch.testing.assert_close(answers.attention(query, key, value), expected)


def test_causal_mask() -> None:
    x = draw(1, 1, 6, 4)
    allowed = AttentionMask(causal=True).allowed(x, x)
    assert allowed is not None
    assert answers.causal_mask(6).dtype == torch.bool
    assert torch.equal(answers.causal_mask(6), allowed[0, 0])


def test_split_heads() -> None:
    x = draw(2, 5, 12)
    heads = answers.split_heads(x, 3)
    assert heads.shape == (2, 3, 5, 4)
    assert all(torch.equal(heads[:, i], x[:, :, 4 * i : 4 * i + 4]) for i in range(3))


def test_layer_norm() -> None:
    x = 3 * draw(2, 5, 12) + 4
    torch.testing.assert_close(answers.layer_norm(x), torch.nn.functional.layer_norm(x, (12,)))


@pytest.mark.parametrize(
    ("N", "d_ff", "h", "d_k", "d_v", "V"), [(1, 16, 2, 4, 4, 10), (3, 10, 4, 3, 5, 30)]
)
def test_parameters(N: int, d_ff: int, h: int, d_k: int, d_v: int, V: int) -> None:
    model = transformer(V, num_layers=N, d_model=8, d_ff=d_ff, num_heads=h, d_k=d_k, d_v=d_v)
    assert answers.parameters(N, 8, d_ff, h, d_k, d_v, V) == sum(
        each.numel() for each in model.parameters()
    )


@pytest.mark.parametrize(("distance", "k"), [(1, 3), (5, 3), (5, 5), (6, 5), (6, 7)])
def test_layers_between(distance: int, k: int) -> None:
    signal, layers = torch.zeros(1, 1, 40), 0
    signal[..., 0] = 1
    while not signal[..., distance]:
        signal = torch.nn.functional.conv1d(signal, torch.ones(1, 1, k), padding=k // 2)
        layers = layers + 1
    assert answers.layers_between(distance, k) == layers


@pytest.mark.parametrize("step", [1, 3999, 4000, 4001, 100_000])
def test_learning_rate(step: int) -> None:
    schedule = InverseSqrt(InverseSqrtConfig(warmup_steps=4000), d_model=512)
    assert answers.learning_rate(step, 512, 4000) == pytest.approx(schedule(step))


def test_perplexity() -> None:
    # As unsure as among seven equal tokens.
    assert answers.perplexity([1 / 7] * 3) == pytest.approx(7)
    assert answers.perplexity([1.0, 0.25]) == pytest.approx(2)


def test_smoothed() -> None:
    """The cross-entropy with these probabilities is the training loss."""
    hidden, weight = draw(1, 6), draw(9, 6)
    loss, _ = smoothed_cross_entropy(hidden, weight, torch.tensor([4]), 0.1)
    wanted = torch.tensor(answers.smoothed(4, 9, 0.1))
    assert wanted.sum().item() == pytest.approx(1)
    assert -(wanted * (hidden @ weight.T).log_softmax(1)[0]).sum().item() == pytest.approx(
        loss.item(), rel=1e-5
    )


def test_dropout() -> None:
    torch.manual_seed(1)
    out = answers.dropout(torch.full((200, 500), 3.0), 0.2)
    assert set(out.unique().tolist()) == {0.0, 3.75}
    assert (out == 0).float().mean().item() == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize(("length", "alpha"), [(1, 0.6), (20, 0.6), (20, 1.0), (20, 0.0)])
def test_length_penalty(length: int, alpha: float) -> None:
    expected = length_penalty(length, alpha)
    assert answers.length_penalty(length, alpha) == pytest.approx(expected)


def test_greedy() -> None:
    """A beam of 1 is greedy. The model never writes the special symbols, which the search leaves
    out.
    """
    model = transformer(12, num_layers=1, d_model=8, d_ff=16, num_heads=2).eval()
    with torch.no_grad():  # a new model would repeat a token for ever
        for weights in model.decoder.parameters():
            weights.add_(0.5 * torch.randn_like(weights))
    model.output_bias = torch.nn.Parameter(torch.tensor([-math.inf] * 3 + [1.5] + [0.0] * 8))
    lengths = set()
    for seed in range(10):
        source = torch.randint(4, 12, (1, 6), generator=torch.Generator().manual_seed(seed))
        (found,) = beam_search.beam_search(model.decodable(), source, [10], SearchSettings(beam=1))
        with torch.inference_mode():
            assert answers.greedy(model.decodable(), source, 10, BOS, EOS) == found[0].tokens
        lengths.add(len(found[0].tokens))
    assert 10 in lengths
    assert len(lengths) > 2  # some end, and some are cut


def test_alignment() -> None:
    weights = torch.tensor([[[0.6, 0.4, 0.0], [0.1, 0.0, 0.9]], [[0.0, 0.9, 0.1], [0.2, 0.1, 0.7]]])
    assert answers.alignment(weights) == [(1, 0), (2, 1)]
