"""Table 3: every row is a preset that lists what differs, with the paper's parameter count."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.commands.dry_run import planned
from nmt_cli.config import resolve
from nmt_cli.presets import PRESETS
from nmt_cli.registry import discover
from nmt_cli.training.settings import RunOptions, TrainingConfig

discover()

ROWS: dict[str, dict[str, Any]] = {
    "transformer_base": {},
    "table3_A_h1": {"num_heads": 1, "d_k": 512, "d_v": 512},
    "table3_A_h4": {"num_heads": 4, "d_k": 128, "d_v": 128},
    "table3_A_h16": {"num_heads": 16, "d_k": 32, "d_v": 32},
    "table3_A_h32": {"num_heads": 32, "d_k": 16, "d_v": 16},
    "table3_B_dk16": {"d_k": 16},
    "table3_B_dk32": {"d_k": 32},
    "table3_C_N2": {"num_layers": 2},
    "table3_C_N4": {"num_layers": 4},
    "table3_C_N8": {"num_layers": 8},
    "table3_C_d256": {"d_model": 256, "d_k": 32, "d_v": 32},
    "table3_C_d1024": {"d_model": 1024, "d_k": 128, "d_v": 128},
    "table3_C_dff1024": {"d_ff": 1024},
    "table3_C_dff4096": {"d_ff": 4096},
    "table3_D_dropout0.0": {"dropout": 0.0},
    "table3_D_dropout0.2": {"dropout": 0.2},
    "table3_D_smoothing0.0": {"label_smoothing": 0.0},
    "table3_D_smoothing0.2": {"label_smoothing": 0.2},
    "table3_E": {"positions": "learned"},
    "transformer_big": {
        "d_model": 1024,
        "d_ff": 4096,
        "num_heads": 16,
        "dropout": 0.3,
        "max_steps": 300_000,
    },
}
"""The values printed in each row. The others are the base row's."""

BASE = {"num_layers": 6, "d_model": 512, "d_ff": 2048, "num_heads": 8, "d_k": 64, "d_v": 64} | {
    "dropout": 0.1,
    "label_smoothing": 0.1,
    "positions": "sinusoidal",
    "max_steps": 100_000,
}

MILLIONS = {
    "transformer_base": 65,
    "table3_B_dk16": 58,
    "table3_B_dk32": 60,
    "table3_C_N2": 36,
    "table3_C_N4": 50,
    "table3_C_N8": 80,
    "table3_C_d256": 28,
    "table3_C_d1024": 168,
    "table3_C_dff1024": 53,
    "table3_C_dff4096": 90,
    "transformer_big": 213,
}
"""The table's last column."""

ROWS_B_AND_C = [preset for preset in MILLIONS if preset.startswith(("table3_B", "table3_C"))]


MISFITS = {"table3_C_N2": 0.07}
"""The one row further off than 5 percent with a vocabulary of 37,000.

`test_the_vocabulary_that_the_table_implies` shows why.
"""


@functools.cache
def parameters(preset: str, vocabulary_size: int = 37_000) -> int:
    """With the vocabulary of section 5.1, about 37,000 tokens, by default."""
    count: int = planned(RunOptions(preset=preset), {}, vocabulary_size).figures["parameters"]
    return count


def described(preset: str) -> dict[str, Any]:
    """The row's values, by the names of the table's columns."""
    config = resolve(TrainingConfig, {}, preset=preset)
    d_k, d_v = config["model"].head_widths()
    fields: dict[str, Any] = {}
    for section in (config.training, *config.components.values()):
        fields |= dataclasses.asdict(section)
    return {name: {**fields, "d_k": d_k, "d_v": d_v}[name] for name in BASE}


@pytest.mark.parametrize("preset", ROWS)
def test_every_row(preset: str) -> None:
    assert described(preset) == BASE | ROWS[preset]


@pytest.mark.parametrize("preset", MILLIONS)
def test_parameters_are_the_papers_within_5_percent(preset: str) -> None:
    assert parameters(preset) / 1e6 == pytest.approx(
        MILLIONS[preset], rel=MISFITS.get(preset, 0.05)
    )


@pytest.mark.parametrize("preset", MILLIONS)
def test_the_vocabulary_that_the_table_implies(preset: str) -> None:
    """The table's 65 million are a base model with 40,700 embeddings, not 37,000.

    With these, every row is within 5 percent, and rows B and C lie within a million of their
    distance from the base model.
    """
    vocabulary_size = round((65e6 - by_hand(6, 512, 2048, 8, 64, 64, V=0)) / 512)
    assert 40_000 < vocabulary_size < 41_500
    count = parameters(preset, vocabulary_size) / 1e6
    assert count == pytest.approx(MILLIONS[preset], rel=0.03)
    if preset in ROWS_B_AND_C:
        assert count - 65 == pytest.approx(MILLIONS[preset] - 65, abs=1.0)


def by_hand(N: int, d_model: int, d_ff: int, h: int, d_k: int, d_v: int, V: int) -> int:
    """Every matrix and vector of Figure 1."""
    attention = 2 * d_model * h * d_k + 2 * d_model * h * d_v
    network = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    return (
        V * d_model
        + N * (attention + network + 2 * norm)
        + N * (2 * attention + network + 3 * norm)
    )


@settings(max_examples=20)
@given(
    N=st.integers(1, 3),
    d_model=st.sampled_from([8, 24]),
    d_ff=st.integers(1, 40),
    h=st.integers(1, 4),
    d_k=st.integers(1, 8),
    d_v=st.integers(1, 8),
    V=st.integers(5, 50),
)
def test_parameters_in_closed_form(
    N: int, d_model: int, d_ff: int, h: int, d_k: int, d_v: int, V: int
) -> None:
    letters = {
        "num_layers": N,
        "d_model": d_model,
        "d_ff": d_ff,
        "num_heads": h,
        "d_k": d_k,
        "d_v": d_v,
    }
    assert planned(RunOptions(), letters, V).figures["parameters"] == by_hand(
        N, d_model, d_ff, h, d_k, d_v, V
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_list_only_what_differs(preset: str) -> None:
    config = resolve(TrainingConfig, {}, preset=preset)
    defaults: dict[str, Any] = {}
    for section in (config.training, *config.components.values()):
        defaults |= dataclasses.asdict(type(section)())
    for name, value in PRESETS[preset].differs.items():
        assert defaults.get(name, ...) != value
