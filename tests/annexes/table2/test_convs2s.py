"""ConvS2S against its equations in loops over positions, and PyTorch's counter of operations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from table2_models import built
from torch import Tensor

from nmt_cli.annexes.table2.convs2s import ConvS2S
from nmt_cli.annexes.table2.settings import ConvS2SConfig
from nmt_cli.errors import UsageError

SOURCE, TARGET = [5, 9, 7, 8, 3], [2, 10, 11, 6]


def small_model(**fields: Any) -> Any:
    small = {
        "d_model": 6,
        "convolutions": "4x3*2,5x1",
        "decoder_convolutions": "4x2,3x3",
        "dropout": 0.0,
    }
    return built("convs2s", **{**small, **fields})


def weight(layer: Any) -> Tensor:
    """Weight normalisation: g v / |v| for each row."""
    g, v = layer.parametrizations.weight.original0, layer.parametrizations.weight.original1
    return g * v / v.square().sum(1, keepdim=True).sqrt()


def linear(layer: Any, x: Tensor) -> Tensor:
    return weight(layer) @ x + layer.bias


def block(layer: Any, states: list[Tensor], before: int) -> list[Tensor]:
    """v(W [h_(i - before), ...] + b) of section 3.2 for every i, with zeros around the sentence."""
    results = []
    for i in range(len(states)):
        places = range(i - before, i - before + layer.convolution.kernel)
        inputs = [
            states[j] if 0 <= j < len(states) else torch.zeros_like(states[0]) for j in places
        ]
        values, gates = linear(layer.convolution, torch.cat(inputs)).chunk(2)
        results.append(values * torch.sigmoid(gates))
    return results


def residual(layer: Any, x: Tensor) -> Tensor:
    return x if isinstance(layer.residual, torch.nn.Identity) else linear(layer.residual, x)


def reference(model: ConvS2S) -> Tensor:
    """The logits [T, V] of the one sentence pair."""
    half = math.sqrt(0.5)
    e = [
        model.source_embedding.weight[x] + model.source_positions.weight[j]
        for j, x in enumerate(SOURCE)
    ]
    z = [linear(model.encoder_in, embedding) for embedding in e]
    for layer in model.encoder:
        blocks = block(layer, z, (layer.convolution.kernel - 1) // 2)
        z = [
            (after + residual(layer, before)) * half
            for before, after in zip(z, blocks, strict=True)
        ]
    z = [linear(model.encoder_out, embedding) for embedding in z]
    g = [
        model.target_embedding.weight[y] + model.target_positions.weight[i]
        for i, y in enumerate(TARGET)
    ]
    h = [linear(model.decoder_in, embedding) for embedding in g]
    for layer in model.decoder:
        inputs, h = h, block(layer, h, layer.convolution.kernel - 1)
        for i, state in enumerate(h):
            d = (linear(layer.attention.query, state) + g[i]) * half
            a = torch.stack([(d * key).sum() for key in z]).exp()
            c = (
                sum((a[j] / a.sum()) * (z[j] + e[j]) * half for j in range(len(z)))
                * len(z)
                * math.sqrt(1 / len(z))
            )
            with_context = (linear(layer.attention.context, c) + state) * half
            h[i] = (with_context + residual(layer, inputs[i])) * half
    output = torch.stack([linear(model.decoder_out, embedding) for embedding in h])
    return (
        output
        @ (
            weight(model.output)
            if isinstance(model.output, torch.nn.Linear)
            else model.output.weight
        ).T
    )


@pytest.mark.parametrize("tied", [False, True])
def test_it_is_what_the_equations_say(tied: bool) -> None:
    """The gradient too, but the encoder's is divided by twice the two attentions."""
    model = small_model(tie_embeddings=tied)
    parameters = dict(model.named_parameters())
    expected = reference(model)
    logits = model(torch.tensor([SOURCE]), torch.tensor([TARGET]))[0]
    torch.testing.assert_close(logits, expected)
    their_logits, our_logits = (
        dict(
            zip(
                parameters,
                torch.autograd.grad(x.square().sum(), list(parameters.values())),
                strict=True,
            )
        )
        for x in (expected, logits)
    )
    for name in parameters:
        if name.startswith("encoder"):
            torch.testing.assert_close(4 * our_logits[name], their_logits[name])
        elif name.startswith(("decoder", "output", "target_positions")):
            torch.testing.assert_close(our_logits[name], their_logits[name])


def test_initial_weights() -> None:
    """Section 3.5, with a dropout of 0.36, which keeps p = 0.64 of the inputs."""
    model = small_model(
        vocabulary=3000,
        d_model=96,
        convolutions="64x3,80x1",
        decoder_convolutions="64x3",
        dropout=0.36,
    )
    assert model.source_embedding.weight.std().item() == pytest.approx(0.1, rel=0.02)
    assert model.target_positions.weight.std().item() == pytest.approx(0.1, rel=0.02)
    expected = {
        model.encoder_in: 0.8 / 96**0.5,
        model.encoder[0].convolution: 1.6 / (3 * 64) ** 0.5,
        model.encoder[1].convolution: 1.6 / 64**0.5,
        model.encoder[1].residual: 64**-0.5,
        model.encoder_out: 80**-0.5,
        model.decoder[0].convolution: 1.6 / (3 * 64) ** 0.5,
        model.decoder[0].attention.query: 64**-0.5,
        model.decoder[0].attention.context: 96**-0.5,
        model.decoder_out: 64**-0.5,
        model.output: 0.8 / 96**0.5,
    }
    for layer, deviation in expected.items():
        assert weight(layer).std().item() == pytest.approx(deviation, rel=0.05)
        assert layer.bias is None or not layer.bias.any()


def test_the_size_of_the_model_for_en_de() -> None:
    """Counted from section 5.1: rows with a length g, and a bias, unless they are embeddings."""

    def rows(inputs: int, outputs: int) -> int:
        return outputs * (inputs + 2)

    layers = (
        [(512, 512, 3)] * 10
        + [(512, 768, 3)]
        + [(768, 768, 3)] * 2
        + [(768, 2048, 1), (2048, 2048, 1)]
    )
    blocks = sum(rows(k * C, 2 * D) + (rows(C, D) if C != D else 0) for C, D, k in layers)
    attention = sum(rows(D, 512) + rows(512, D) for _, D, _ in layers)
    ends = 2 * (rows(512, 512) + rows(2048, 512))
    # There is no bias before the softmax.
    embeddings = 2 * (40_000 + 1024) * 512 + 40_000 * (512 + 1)
    model = built("convs2s", vocabulary=40_000, device="meta")
    assert sum(p.numel() for p in model.parameters()) == 2 * blocks + attention + ends + embeddings


def test_positions_past_the_table_have_its_last_row() -> None:
    model = small_model(max_positions=3).eval()
    source, target = torch.tensor([SOURCE]), torch.tensor([TARGET])
    with torch.no_grad():
        before = model(source, target)
        model.target_positions.weight[2] += 1.0
        after = model(source, target)
    changed = [not torch.equal(before[0, i], after[0, i]) for i in range(4)]
    assert changed == [False, False, True, True]


@pytest.mark.parametrize("text", ["", "512", "512x0", "512x3,,512x3", "512x3*0"])
def test_layers_in_another_form_are_refused(text: str) -> None:
    for flag in ("convolutions", "decoder_convolutions"):
        with pytest.raises(UsageError, match=f"^--{flag.replace('_', '-')} takes CHANNELSxKERNEL"):
            ConvS2SConfig(**{flag: text})


def test_the_number_of_layers_is_bounded() -> None:
    """A stranger's checkpoint of a megabyte must not ask for a hundred million."""
    assert len(ConvS2SConfig(convolutions="8x3*999,8x3").widths()[0]) == 1000
    with pytest.raises(UsageError, match=r"--convolutions .*1,000 layers"):
        ConvS2SConfig(convolutions=",".join(["8x3*999"] * 1000))


def test_layers_by_their_channels_and_kernels() -> None:
    assert ConvS2SConfig(convolutions="8x3*2, 16x1").widths()[0] == [(8, 3), (8, 3), (16, 1)]
    assert ConvS2SConfig(convolutions="8x3", decoder_convolutions="4x5").widths() == (
        [(8, 3)],
        [(4, 5)],
    )
