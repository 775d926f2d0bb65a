"""Table 3: the paper, this run, the difference. Markdown on standard output.

table3.py table full|small "ROW*SEEDS ..." [NOTE]   the table, in the recipe's directory
table3.py items full|small "LIST"               the rows of --rows as "ROW*SEEDS ..."; without a list, all
table3.py flags ROW STEPS                      flags of nmt train that make the row small
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from paper_tables import (
    PAIRS,
    compared,
    known,
    last_perplexity,
    parameters_of,
    read_items,
    runs_of,
    scores_of,
    shown,
    spread,
)
from report import print_table, user_errors

from nmt_cli.presets import PRESETS


class PaperRow(NamedTuple):
    """A row of Table 3: perplexity a subword, BLEU, and millions of parameters where the paper
    prints them.
    """

    differs: str
    perplexity: float
    bleu: float
    parameters: float = math.nan


TABLE3 = {
    "base": PaperRow("", 4.92, 25.8, 65),
    "A_h1": PaperRow("h=1, d_k=d_v=512", 5.29, 24.9),
    "A_h4": PaperRow("h=4, d_k=d_v=128", 5.00, 25.5),
    "A_h16": PaperRow("h=16, d_k=d_v=32", 4.91, 25.8),
    "A_h32": PaperRow("h=32, d_k=d_v=16", 5.01, 25.4),
    "B_dk16": PaperRow("d_k=16", 5.16, 25.1, 58),
    "B_dk32": PaperRow("d_k=32", 5.01, 25.4, 60),
    "C_N2": PaperRow("N=2", 6.11, 23.7, 36),
    "C_N4": PaperRow("N=4", 5.19, 25.3, 50),
    "C_N8": PaperRow("N=8", 4.88, 25.5, 80),
    "C_d256": PaperRow("d_model=256, d_k=d_v=32", 5.75, 24.5, 28),
    "C_d1024": PaperRow("d_model=1024, d_k=d_v=128", 4.66, 26.0, 168),
    "C_dff1024": PaperRow("d_ff=1024", 5.12, 25.4, 53),
    "C_dff4096": PaperRow("d_ff=4096", 4.75, 26.2, 90),
    "D_dropout0.0": PaperRow("P_drop=0.0", 5.77, 24.6),
    "D_dropout0.2": PaperRow("P_drop=0.2", 4.95, 25.5),
    "D_smoothing0.0": PaperRow("eps_ls=0.0", 4.67, 25.3),
    "D_smoothing0.2": PaperRow("eps_ls=0.2", 5.47, 25.7),
    "E": PaperRow("learned positions", 4.92, 25.7),
    "big": PaperRow("d_model=1024, d_ff=4096, h=16, P_drop=0.3, 300K steps", 4.33, 26.4, 213),
}
MEASURES = ("multi30k", PAIRS["de"].measure)
"""The table's BLEU: the first of these that the dev set was scored with."""

SMALLER = {"num_layers": 2, "d_model": 4, "d_ff": 4, "d_k": 4, "d_v": 4}
"""Divisors of the sizes in the small version; h and eps_ls stay."""
PAPERS_SIZES = {"num_layers": 6, "d_model": 512, "d_ff": 2048}
MORE_DROPOUT = 0.1
"""Added to P_drop, unless that is 0, in the small version: it has 155 times fewer sentences."""


def preset_of(row: str) -> str:
    return f"transformer_{row}" if row in ("base", "big") else f"table3_{row}"


def small_sizes(row: str) -> dict[str, Any]:
    """Return the sizes and the dropout of a row at small scale."""
    row_differs = PRESETS[preset_of(row)].differs
    differs = {name: value for name, value in row_differs.items() if name in SMALLER}
    sizes: dict[str, Any] = {
        name: value // SMALLER[name] for name, value in {**PAPERS_SIZES, **differs}.items()
    }
    dropout = row_differs.get("dropout", 0.1)
    return {**sizes, "dropout": round(dropout + MORE_DROPOUT, 3) if dropout else dropout}


def small_flags(row: str, steps: int) -> list[str]:
    """Return the flags that make a row small.

    The big model trains three times as many steps, as in the paper. The rate peaks after a fifth of
    the steps, at 0.003 for the base model, and falls to zero.
    """
    steps = 3 * steps if row == "big" else steps
    warmup = max(1, steps // 5)
    scale = 0.003 * (PAPERS_SIZES["d_model"] / SMALLER["d_model"] * warmup) ** 0.5
    flags = {
        **small_sizes(row),
        "batch_tokens": 2048,
        "max_steps": steps,
        "schedule": "linear_decay",
        "warmup_steps": warmup,
        "learning_rate_scale": f"{scale:.6g}",
        "decay_steps": max(2, steps),
        "save_every": max(1, steps // 4),
        "keep_last": 1,
        "log_every": max(1, steps // 20),
    }
    return [
        word
        for name, value in flags.items()
        for word in ("--" + name.replace("_", "-"), str(value))
    ]


class Result(NamedTuple):
    """The figures of a row, one for each seed."""

    perplexity: list[float]
    bleu: list[float]
    parameters: list[float]  # in millions


def measure_of(run: str) -> str:
    """Return the measure of the table."""
    scored = scores_of(Path(run) / "dev-score.json")
    return next((measure for measure in MEASURES if measure in scored), MEASURES[-1])


def result_of(item: str) -> Result:
    """Return the figures of a trained row."""
    runs = runs_of(item)
    return Result(
        [last_perplexity(Path(run) / "run") for run in runs],
        [known(scores_of(Path(run) / "dev-score.json"), measure_of(run)) for run in runs],
        [parameters_of(Path(run) / "run") / 1e6 for run in runs],
    )


def full_cells(item: str) -> list[str]:
    """Return a row of cells: paper, this run and difference of three figures."""
    row = runs_of(item)[0]
    paper, cells = TABLE3[row], [row, TABLE3[row].differs]
    for expected, got, form in zip(paper[1:], result_of(item), (".2f", ".1f", ".1f"), strict=True):
        printed, _, difference = compared(expected, fmean(got), form)
        cells += [printed, spread(got, form), difference]
    return cells


def small_cells(item: str, base_item: str) -> list[str]:
    """Return a row of cells: this run, and the difference to the base model in this run and in the
    paper.
    """
    row, got, base = runs_of(item)[0], result_of(item), result_of(base_item)
    differs = PRESETS[preset_of(row)].differs
    here = small_sizes(row) | {
        name: differs[name] for name in differs if name in ("num_heads", "label_smoothing")
    }
    cells = [
        row,
        TABLE3[row].differs,
        ", ".join(f"{name}={here[name]}" for name in here if name in differs),
    ]
    cells[2] += "positions=learned" if row == "E" else ""
    papers, papers_base = TABLE3[row][1:3], TABLE3["base"][1:3]
    for values, base_values, paper, paper_base in zip(
        got[:2], base[:2], papers, papers_base, strict=True
    ):
        cells += [spread(values, ".2f"), shown(fmean(values) - fmean(base_values), "+.2f")]
        cells.append(f"{paper - paper_base:+.2f}")
    return [*cells, shown(fmean(got.parameters), ".2f")]


def print_table3(scale: str, names: str, note: str = "") -> None:
    items = names.split()
    how = f"Dev set, no averaging, beam 4, BLEU as {measure_of(runs_of(items[0])[0])}.{' ' * bool(note)}{note}"
    if any(len(runs_of(item)) > 1 for item in items):
        how += " Rows with several seeds: mean ± standard deviation."
    if scale == "full":
        print(f"Table 3: WMT14 English to German. {how}\n")
        three = ("paper", "this run", "difference")
        header = [
            "row",
            "differs",
            *(f"{name}, {which}" for name in ("PPL", "BLEU", "params") for which in three),
        ]
        print_table(header, [full_cells(item) for item in items], text_columns=2)
    else:
        base = next(item for item in items if runs_of(item)[0] == "base")
        print(
            f'Table 3 at small scale. {how} "To base": the row\'s difference to the base model.\n'
        )
        three = ("", ", to base", ", to base in the paper")
        header = [
            "row",
            "in the paper",
            "here",
            *(name + which for name in ("PPL", "BLEU") for which in three),
        ]
        print_table(
            [*header, "params (1e6)"], [small_cells(item, base) for item in items], text_columns=3
        )


def items(scale: str, words: str) -> str:
    """Return the items of --rows. At small size the base model is one of them, as the others are
    compared with it.
    """
    found = read_items("row", list(TABLE3), words or " ".join(TABLE3))
    return found if scale == "full" or " base*" in f" {found}" else f"base*1 {found}"


def main(command: str, *arguments: str) -> None:
    if command == "items":
        print(items(*arguments))
    elif command == "flags":
        row, steps = arguments
        print("\n".join(small_flags(row, int(steps))))
    else:
        print_table3(*arguments)


if __name__ == "__main__":
    with user_errors():
        main(*sys.argv[1:])
