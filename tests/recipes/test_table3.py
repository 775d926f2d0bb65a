"""Table 3's table and the rows at small scale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import table3

from nmt_cli.presets import PRESETS

Table = Callable[..., dict[str, list[str]]]


@pytest.fixture
def rows_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    for row, perplexity, bleu in (("base", 4.9, 25.0), ("C_N2", 6.0, 23.5), ("C_N2-2", 6.2, 24.5)):
        results.write_run(tmp_path / row / "run", perplexity, 2_000_000)
        results.write_json(
            tmp_path / row / "dev-score.json",
            {"scores": [results.score("get-ende-bleu-quotes", bleu)]},
        )
    return tmp_path


@pytest.mark.usefixtures("rows_folder")
def test_full_size_shows_paper_run_and_difference(table_of: Table) -> None:
    row = table_of(table3, "table", "full", "base C_N2")["C_N2"]
    assert row == ["N=2", "6.11", "6.00", "-0.11", "23.7", "23.5", "-0.2", "36.0", "2.0", "-34.0"]
    seeds = table_of(table3, "table", "full", "base*1 C_N2*2")["C_N2"]
    assert seeds[1:7] == ["6.11", "6.10 ± 0.14", "-0.01", "23.7", "24.0 ± 0.7", "+0.3"]


@pytest.mark.usefixtures("rows_folder")
def test_small_scale_compares_differences_to_the_base_model(table_of: Table) -> None:
    row = table_of(table3, "table", "small", "base C_N2")["C_N2"]
    assert row == [
        "N=2",
        "num_layers=1",
        "6.00",
        "+1.10",
        "+1.19",
        "23.50",
        "-1.50",
        "-2.10",
        "2.00",
    ]
    seeds = table_of(table3, "table", "small", "base*1 C_N2*2")["C_N2"]
    assert seeds[2:7] == ["6.10 ± 0.14", "+1.20", "+1.19", "24.00 ± 0.71", "-1.00"]


def test_items_have_the_base_model_at_small_size() -> None:
    assert table3.items("full", "E*2 big") == "E*2 big*1"
    assert table3.items("small", "E*3") == "base*1 E*3"
    assert table3.items("small", "E base*3") == "E*1 base*3"
    assert len(table3.items("full", "").split()) == 20


def test_every_row_has_its_preset() -> None:
    presets = {table3.preset_of(row) for row in table3.TABLE3}
    assert presets == {name for name in PRESETS if name.startswith("table3_")} | {
        "transformer_base",
        "transformer_big",
    }


@pytest.mark.parametrize(
    ("row", "differs"),
    [
        ("base", {}),
        ("B_dk16", {"d_k": 4, "d_v": 16}),
        ("C_N2", {"num_layers": 1}),
        ("D_dropout0.0", {"dropout": 0.0}),
        ("D_dropout0.2", {"dropout": 0.3}),
        ("big", {"d_model": 256, "d_ff": 1024, "dropout": 0.4}),
    ],
)
def test_small_rows_keep_the_papers_proportions(row: str, differs: dict[str, Any]) -> None:
    base = {"num_layers": 3, "d_model": 128, "d_ff": 512, "dropout": 0.2}
    assert table3.small_sizes(row) == {**base, **differs}


def test_small_rows_peak_at_a_fifth_of_their_steps_and_fall_to_zero() -> None:
    flags = table3.small_flags("base", 400)
    values = dict(zip(flags[::2], flags[1::2], strict=True))
    warmup, scale = int(values["--warmup-steps"]), float(values["--learning-rate-scale"])
    assert (warmup, values["--max-steps"], values["--decay-steps"]) == (80, "400", "400")
    assert scale * (128 * warmup) ** -0.5 == pytest.approx(0.003, rel=1e-5)
    big = table3.small_flags("big", 400)
    assert big[big.index("--max-steps") + 1] == "1200"
