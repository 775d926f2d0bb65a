"""ByteNet against its paper's equations, in loops over positions and channels, and counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from table2_models import built
from torch import Tensor, nn

from nmt_cli.annexes.table2.bytenet import Block, ByteNet
from nmt_cli.annexes.table2.settings import ByteNetConfig
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import PAD
from nmt_cli.presets import PRESETS

DILATIONS = [1, 2, 4, 1]
"""Of the model that `made` makes."""


def small_model(**fields: Any) -> Any:
    """A model with random weights, which are neither zero nor one."""
    model = built("bytenet", **{"num_layers": 4, "d_model": 8, "max_dilation": 4, **fields})
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def norm(layer: nn.Module, x: Tensor) -> Tensor:
    """Layer normalisation of one position."""
    gain, bias = layer.parameters()
    return (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt() * gain + bias


def convolution(block: Block, h: list[Tensor], t: int, dilation: int, masked: bool) -> Tensor:
    """Sections 3.4 and 3.5: position t of a convolution of kernel 3 with zeros around."""
    inputs = (t - 2 * dilation, t - dilation, t) if masked else (t - dilation, t, t + dilation)
    weights = block.convolution.weight.chunk(3, dim=1)
    result = block.convolution.bias
    for weight, position in zip(weights, inputs, strict=True):
        if 0 <= position < len(h):
            result = result + weight @ h[position]
    return result


def residual(block: Block, x: list[Tensor], dilation: int, masked: bool) -> list[Tensor]:
    """Figure 3, left, over a sentence."""
    h = [
        norm(block.inner_norm, block.narrow(norm(block.outer_norm, x_t).relu())).relu() for x_t in x
    ]
    result = []
    for t, x_t in enumerate(x):
        inner = norm(block.convolved_norm, convolution(block, h, t, dilation, masked)).relu()
        result.append(x_t + block.widen(inner))
    return result


@torch.no_grad()
def reference(model: ByteNet, source: list[int], target: list[int], columns: int) -> Tensor:
    """The output of the decoder for one sentence, by sections 3.1 to 3.6."""
    scale = 8**0.5
    padded = source + [PAD] * (columns - len(source))
    x = [model.source_embedding.weight[word] * scale for word in padded]
    for block, dilation in zip(model.encoder, DILATIONS, strict=True):
        x = residual(block, x, dilation, masked=False)
    y = [model.target_embedding.weight[word] * scale for word in target]
    y = [y[t] + x[t] if t < columns else y[t] for t in range(len(y))]
    for block, dilation in zip(model.decoder, DILATIONS, strict=True):
        y = residual(block, y, dilation, masked=True)
    projection, normalisation = list(model.last)[:2]
    return torch.stack([norm(normalisation, projection(y_t)).relu() for y_t in y])


def test_the_equations_of_the_paper() -> None:
    """Targets longer and shorter than their sources' columns: 6, 2 and 9 columns in one batch."""
    model = small_model()
    sources = [[5, 6, 7, 8, 3], [9, 3], [4, 5, 6, 7, 8, 9, 10, 3]]
    targets = [[2, 10, 11, 12, 13, 14, 15, 16, 17], [2, 13, 14, 15], [2, 4]]
    batch = [
        nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in side], True)
        for side in (sources, targets)
    ]
    output = model.decoder_output(*batch)
    for number, columns in enumerate((6, 2, 9)):
        expected = reference(model, sources[number], targets[number], columns)
        torch.testing.assert_close(output[number, : len(expected)], expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(
    ("length_ratio", "length_offset"), [(1.0, 0), (1.4, 0), (1.2, 5), (1.7, 0)]
)
def test_a_sentence_has_as_many_columns_in_a_batch_as_alone(
    length_ratio: float, length_offset: int
) -> None:
    """Where a n + b is a whole number but for rounding as well, as 1.4 * 45."""
    model = small_model(num_layers=1, length_ratio=length_ratio, length_offset=length_offset)
    lengths = range(1, 61)
    source = nn.utils.rnn.pad_sequence([torch.full((n,), 7) for n in lengths], True)
    together = (model.start(source).source[0] != 0).any(2).sum(1)
    assert together.tolist() == [
        model.start(source[n - 1 : n, :n]).source[0].size(1) for n in lengths
    ]
    assert (together >= torch.tensor(lengths)).all()


def test_the_defaults_are_the_model_of_section_6() -> None:
    """d = 800, 30 blocks on each side, kernel 3, dilations 1, 2, 4, 8, 16.

    Weights counted by hand.
    """
    fields = {"num_layers", "d_model", "kernel", "max_dilation"}
    assert not fields & PRESETS["bytenet_paper"].differs.keys()
    config = ByteNetConfig()
    assert config.dilations() == [1, 2, 4, 8, 16] * 6
    model = small_model(
        vocabulary=323, device="meta", **{name: getattr(config, name) for name in fields}
    )
    d, V = 800, 323
    weights = 2 * d * d + 3 * d * d + 2 * d * d
    biases = d + d + 2 * d
    norms = 2 * (2 * d + d + d)
    last = 2 * d * 2 * d + 2 * d + 2 * 2 * d
    assert (
        sum(p.numel() for p in model.parameters())
        == 60 * (weights + biases + norms) + last + 3 * V * 2 * d
    )


@pytest.mark.parametrize(
    ("fields", "flag"), [({"d_model": 9}, "--d-model 9"), ({"kernel": 4}, "--kernel 4")]
)
def test_impossible_widths_are_refused(fields: dict[str, Any], flag: str) -> None:
    with pytest.raises(UsageError, match=flag):
        ByteNetConfig(**fields)
