"""Deep-Att against its equations, computed one position, layer and sentence at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from table2_models import built
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from nmt_cli.annexes.table2.deep_att import DeepAtt
from nmt_cli.annexes.table2.settings import DeepAttConfig
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import BOS, EOS

SMALL = DeepAttConfig(num_layers=3, num_decoder_layers=3, d_model=6, d_embedding=4, dropout=0.0)
SOURCE, TARGET = [5, 6, 7, 8, EOS], [BOS, 9, 10, 11]


def small_model(**fields: Any) -> Any:
    return built("deep_att", **{**dataclasses.asdict(SMALL), **fields}).eval()


@pytest.fixture
def model() -> DeepAtt:
    """Its weights are neither zero nor small."""
    model: DeepAtt = small_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


class Equations:
    """Logits, with a loop for each of the model's sums.

    The products are the paper's, each computed once.
    """

    def __init__(self, model: DeepAtt) -> None:
        self.model, self.weights = model, dict(model.named_parameters())

    def f(self, layer: str, x: Tensor) -> Tensor:
        """W_f x."""
        return torch.nn.functional.linear(x, self.weights[f"{layer}.cells.weight_ih_l0"])

    def half(self, f: Tensor) -> Tensor:
        """The first half, where cell's input and input gate come first.

        PyTorch's order is i, f, g, o.
        """
        i, _, g, _ = f.chunk(4)
        return torch.cat([g, i])

    def cell(self, layer: str, f: Tensor, h: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Equation 3."""
        recurrent = torch.nn.functional.linear(h, self.weights[f"{layer}.cells.weight_hh_l0"])
        biases = (
            self.weights[f"{layer}.cells.bias_ih_l0"] + self.weights[f"{layer}.cells.bias_hh_l0"]
        )
        i, forget, g, o = (f + recurrent + biases).chunk(4)
        s = i.sigmoid() * g.tanh() + forget.sigmoid() * s
        return o.sigmoid() * s.tanh(), s

    def column(self, number: int, source: Sequence[int]) -> list[Tensor]:
        """[h, f] at each position."""
        d, count = SMALL.d_model, len(source)
        x = [self.model.source_embedding.weight[i] for i in source]
        for k in range(SMALL.num_layers):
            layer = f"columns.{number}.{k}"
            f = [self.f(layer, x_t) for x_t in x]
            h, state = [torch.zeros(d)] * count, (torch.zeros(d), torch.zeros(d))
            for t in range(count) if (k + number) % 2 == 0 else reversed(range(count)):
                state = self.cell(layer, f[t], *state)
                h[t] = state[0]
            x = [torch.cat([self.half(f[t]), h[t]]) for t in range(count)]
        return [torch.cat([h[t], f[t]]) for t in range(count)]

    def logits(self, source: Sequence[int], target_in: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The logits [T, V] and the weights of the attention [T, S]."""
        d, w = SMALL.d_model, self.weights
        linear = torch.nn.functional.linear
        columns = zip(self.column(0, source), self.column(1, source), strict=True)
        e = [torch.cat([first[:d], second[:d], first[d:], second[d:]]) for first, second in columns]
        values = [linear(state, w["projection.weight"]) for state in e]
        keys = [
            linear(state, w["attention.key.weight"], w["attention.key.bias"]) for state in values
        ]
        states = [(torch.zeros(d), torch.zeros(d)) for _ in range(SMALL.num_decoder_layers)]
        logits, attention = [], []
        for i in target_in:
            query = linear(states[0][0], w["attention.query.weight"])
            scores = torch.cat(
                [linear(torch.tanh(query + key), w["attention.score.weight"]) for key in keys]
            )
            attention.append(scores.softmax(0))
            context = attention[-1] @ torch.stack(values)
            x = torch.cat([context, self.model.target_embedding.weight[i]])
            for k in range(SMALL.num_decoder_layers):
                f = self.f(f"decoder.{k}", x)
                states[k] = self.cell(f"decoder.{k}", f, *states[k])
                x = torch.cat([self.half(f), states[k][0]])
            logits.append(linear(states[-1][0], self.model.output_weight))
        return torch.stack(logits), torch.stack(attention)


@torch.no_grad()
def test_it_computes_the_equations(model: DeepAtt) -> None:
    logits, attention = Equations(model).logits(SOURCE, TARGET)
    rows = torch.tensor([SOURCE]), torch.tensor([TARGET])
    torch.testing.assert_close(model(*rows)[0], logits)
    torch.testing.assert_close(model.attention_weights(*rows)["cross"][0, 0, 0], attention)


@torch.no_grad()
def test_operations_are_those_of_the_equations(model: DeepAtt) -> None:
    with FlopCounterMode(display=False) as counter:
        Equations(model).logits(SOURCE, TARGET)
    counted = model.training_flops(np.array([len(SOURCE)]), np.array([len(TARGET)]))
    assert sum(counted.values()) == 3 * counter.get_total_flops()


def test_sizes_of_the_paper() -> None:
    """Section 4.2: widths of 256 and 512. C_t has 1280 elements."""
    model = built("deep_att", vocabulary=80_000, device="meta")
    d, c, e = 512, 1280, 256
    assert model.config.d_context == c
    lstm = {
        name: parameter.numel()
        for name, parameter in model.named_parameters()
        if ".cells.weight" in name
    }
    stacked = 4 * d * (2 * d + d) + 4 * d * d  # of a layer: W_f for [Half(f), h], and W_r
    first = 2 * (4 * d * e + 4 * d * d) + 4 * d * (c + e) + 4 * d * d
    assert sum(lstm.values()) == first + (2 * 8 + 6) * stacked
    assert model.projection.weight.shape == (c, 10 * d)


def test_weights_begin_as_in_the_paper() -> None:
    """Section 4.3: recurrent weights are zero, the others have a standard deviation of 0.07."""
    for name, parameter in small_model(d_model=32, vocabulary=200).named_parameters():
        if "weight_hh" in name or "bias" in name:
            assert not parameter.any(), name
        elif parameter.numel() > 1000:
            assert parameter.std().item() == pytest.approx(0.07, rel=0.1), name


def test_dropout_is_on_the_outputs_of_layers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equation 5: Half(f) is a linear function of the embeddings, so it stays."""
    model = small_model(dropout=0.5).train()
    dropped: list[Tensor] = []
    monkeypatch.setattr(type(model.dropout), "forward", lambda self, x: dropped.append(x) or x)
    model(torch.tensor([SOURCE]), torch.tensor([TARGET]))
    assert len(dropped) == 2 * SMALL.num_layers + SMALL.num_decoder_layers
    assert {x.size(-1) for x in dropped} == {SMALL.d_model}


def test_tied_embeddings_need_the_width_of_the_output() -> None:
    with pytest.raises(UsageError, match=r"--d-embedding 4 .*--d-model 6"):
        small_model(tie_embeddings=True)
