from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from nmt_cli.annexes.exchange.export.comparison import TOLERANCE, Comparison
from nmt_cli.errors import CheckpointError
from nmt_cli.weights import load_model


@pytest.fixture(scope="module")
def comparison(tiny_checkpoint: Path) -> Comparison:
    model, task = load_model(tiny_checkpoint)
    return Comparison(model, task, ["abc", "hgfedcba"], "Other")


def test_what_agrees_is_reported(comparison: Comparison) -> None:
    our_values = comparison.log_probabilities(comparison.outputs)
    near = [[value + TOLERANCE / 2 for value in row] for row in our_values]
    tokens = sum(map(len, our_values))
    probabilities, outputs = comparison.report(near, comparison.outputs)
    assert probabilities.startswith(
        f"log-probabilities: 0.0005 is the largest difference in {tokens} tokens"
    )
    assert outputs == "greedy outputs: 2 of 2 equal"


@pytest.mark.parametrize("off", [2 * TOLERANCE, float("nan")])
def test_one_other_log_probability_is_refused(comparison: Comparison, off: float) -> None:
    their_values = comparison.log_probabilities(comparison.outputs)
    their_values[1][-1] += off
    with pytest.raises(CheckpointError, match="Other computes other log-probabilities"):
        comparison.report(their_values, comparison.outputs)


@pytest.mark.parametrize("change", [lambda row: row[:-1], lambda row: [*row[:2], 4, *row[3:]]])
def test_another_output_is_refused_unless_its_tokens_are_as_probable(
    comparison: Comparison, change: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(change)
    outputs = [comparison.outputs[0], change(comparison.outputs[1])]
    our_values = comparison.log_probabilities(comparison.outputs)
    with pytest.raises(CheckpointError, match="Other translates a sentence differently"):
        comparison.report(our_values, outputs)
    monkeypatch.setattr(
        comparison, "log_probabilities", lambda targets: [[-1.0] * 99 for _ in targets]
    )
    flat = [[-1.0] * 99 for _ in outputs]
    assert "1 of 2 equal; 1 chose another of two tokens" in comparison.report(flat, outputs)[1]


def test_a_model_that_rounding_changes_a_lot_is_allowed_to_differ_more(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt_cli.annexes.exchange.export.comparison.TOLERANCE", 1e-7)
    model, task = load_model(tiny_checkpoint)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(300 if "w_q" in name or "w_k" in name else 3)
    comparison = Comparison(model, task, ["abc", "hgfedcba"], "Other")
    exact = comparison.log_probabilities(comparison.outputs, copy.deepcopy(model).double())
    assert exact != comparison.log_probabilities(comparison.outputs)
    comparison.report(exact, comparison.outputs)
    with pytest.raises(CheckpointError, match="Other computes other log-probabilities"):
        comparison.report([[value + 1 for value in row] for row in exact], comparison.outputs)
