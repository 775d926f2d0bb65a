"""The MoE model against appendix E written out in loops, and the paper's own figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from table2_models import built
from torch import Tensor

from nmt_cli.annexes.table2.experts import Experts
from nmt_cli.annexes.table2.moe import MoE
from nmt_cli.annexes.table2.settings import MoEConfig
from nmt_cli.errors import UsageError

SMALL = {
    "d_model": 8,
    "d_hidden": 12,
    "d_ff": 10,
    "experts": 4,
    "experts_per_token": 2,
    "dropout": 0.0,
}
SOURCE, TARGET = [5, 9, 7, 3], [2, 6, 4, 11, 8]


@pytest.fixture
def model() -> MoE:
    """With gates that are not equal."""
    model: MoE = built("moe", **SMALL).eval()
    with torch.no_grad():
        for experts in (model.encoder_experts, model.decoder_experts):
            experts.gate.weight.normal_()
    return model


def lstm(layer: Any, x: Tensor, output: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """One step of an LSTM with a projection, as in torch's documentation."""
    cells = layer.cells
    gates = (
        cells.weight_ih_l0 @ x + cells.bias_ih_l0 + cells.weight_hh_l0 @ output + cells.bias_hh_l0
    )
    enters, forgets, new, leaves = gates.view(4, -1)
    cell = forgets.sigmoid() * cell + enters.sigmoid() * new.tanh()
    return cells.weight_hr_l0 @ (leaves.sigmoid() * cell.tanh()), cell


def run(layer: Any, xs: list[Tensor]) -> list[Tensor]:
    output, cell, outputs = torch.zeros(8), torch.zeros(12), []
    for x in xs:
        output, cell = lstm(layer, x, output, cell)
        outputs.append(output)
    return outputs


def mixed(experts: Experts, x: Tensor) -> Tensor:
    """A residual connection around the sigmoid of the mixture."""
    return x + experts(x[None])[0].sigmoid()


@torch.no_grad()
def test_it_is_the_network_of_appendix_e(model: MoE) -> None:
    source = [model.source_embedding.weight[word] for word in SOURCE]
    from_right = run(model.from_right, source[::-1])[::-1]
    xs = [
        x + left + right
        for x, left, right in zip(source, run(model.from_left, source), from_right, strict=True)
    ]
    xs = [mixed(model.encoder_experts, x) for x in xs]
    xs = [x + output for x, output in zip(xs, run(model.encoder_top, xs), strict=True)]
    u, w, v = model.attention.u.weight, model.attention.w.weight, model.attention.v.weight[0]
    ys, output, cell = [], torch.zeros(8), torch.zeros(12)
    for word in TARGET:
        # Equation 22.
        scores = torch.stack([(v * (u @ x).tanh() * (w @ output).tanh()).sum() for x in xs])
        context = sum(
            (weight * x for weight, x in zip(scores.softmax(0), xs, strict=True)), torch.zeros(8)
        )
        embedded = model.target_embedding.weight[word]
        output, cell = lstm(model.decoder_bottom, torch.cat([embedded, context]), output, cell)
        ys.append(mixed(model.decoder_experts, embedded + output))
    expected = [
        model.output_weight @ (y + top)
        for y, top in zip(ys, run(model.decoder_top, ys), strict=True)
    ]
    logits = model(torch.tensor([SOURCE]), torch.tensor([TARGET]))[0]
    torch.testing.assert_close(logits, torch.stack(expected))


def test_the_figures_of_the_paper() -> None:
    """Table 3: 8.7 billion parameters and 85 million multiply-adds a step.

    Appendix E: 2 million in an expert.
    """
    model = built("moe", vocabulary=32_000, device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(
        8.7e9, rel=0.005
    )
    experts = model.encoder_experts
    assert experts.inner[0].numel() + experts.outer[0].numel() == 2 * 512 * 2048
    parts = model.training_flops(np.array([1]), np.array([1]))
    # Two mixtures with noise, where the paper's gates are hierarchical.
    gates = 2 * 3 * 2 * 2 * 512 * 2048
    assert (sum(parts.values()) - parts["attention"] - gates) / 6 == pytest.approx(85e6, rel=0.01)


@pytest.mark.parametrize("d_hidden", [8, 12])
def test_it_trains_in_bfloat16(d_hidden: int) -> None:
    model = built("moe", **SMALL | {"d_hidden": d_hidden, "dropout": 0.3})
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.decoder_output(torch.tensor([SOURCE]), torch.tensor([TARGET]))
    added = sum(experts.added_loss() for experts in (model.encoder_experts, model.decoder_experts))
    (hidden.float().sum() + added).backward()
    assert all(
        parameter.grad is not None and parameter.grad.isfinite().all()
        for parameter in model.encoder_experts.parameters()
    )
    assert model.decoder_bottom.cells.weight_hh_l0.grad.any()


def test_an_lstm_has_at_least_as_many_cells_as_outputs() -> None:
    with pytest.raises(UsageError, match="--d-hidden 7 is below --d-model 8"):
        MoEConfig(d_model=8, d_hidden=7)
