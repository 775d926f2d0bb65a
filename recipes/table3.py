"""Table 3: the paper, this run, the difference. Markdown on standard output.

table3.py table full|small "ROW*SEEDS ..." [NOTE]
    the table, in the recipe's directory
table3.py items full|small "LIST"
    the rows of --rows as "ROW*SEEDS ...". Without a list, all rows
table3.py flags ROW STEPS
    flags of nmt train that make the row small
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
    """A row of Table 3."""

    differs: str
    perplexity: float  # a subword
    bleu: float
    parameters: float = math.nan  # in millions, where the paper prints them


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
# The table's BLEU: the first of these that the dev set was scored with.
MEASURES = ("multi30k", PAIRS["de"].measure)

# Divisors of the sizes in the small version. h and eps_ls stay.
SMALLER = {"num_layers": 2, "d_model": 4, "d_ff": 4, "d_k": 4, "d_v": 4}
PAPERS_SIZES = {"num_layers": 6, "d_model": 512, "d_ff": 2048}
# Added to P_drop, unless that is 0, in the small version, which has 155 times fewer sentences.
MORE_DROPOUT = 0.1


def preset_of(row: str) -> str:
    if row in ("base", "big"):
        return f"transformer_{row}"
    return f"table3_{row}"


def small_sizes(row: str) -> dict[str, Any]:
    """Return the sizes and the dropout of a row at small scale."""
    settings = PAPERS_SIZES | PRESETS[preset_of(row)].differs
    sizes: dict[str, Any] = {}
    for name, value in settings.items():
        if name in SMALLER:
            sizes[name] = value // SMALLER[name]
    dropout = settings.get("dropout", 0.1)
    if dropout > 0:
        dropout = round(dropout + MORE_DROPOUT, 3)
    return sizes | {"dropout": dropout}


def small_flags(row: str, steps: int) -> list[str]:
    """Return the flags that make a row small.

    The big model trains three times as many steps, as in the paper. The rate peaks after a fifth of
    the steps, at 0.003 for the base model, and falls to zero.
    """
    if row == "big":
        steps *= 3
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
    words = []
    for name, value in flags.items():
        words += ["--" + name.replace("_", "-"), str(value)]
    return words


class Result(NamedTuple):
    """The figures of a row, one for each seed."""

    perplexity: list[float]
    bleu: list[float]
    parameters: list[float]  # in millions


def measure_of(run: str) -> str:
    """Return the measure of the table."""
    scores = scores_of(Path(run) / "dev-score.json")
    for measure in MEASURES:
        if measure in scores:
            return measure
    return MEASURES[-1]


def result_of(item: str) -> Result:
    """Return the figures of a trained row."""
    result = Result([], [], [])
    for run in runs_of(item):
        scores = scores_of(Path(run) / "dev-score.json")
        result.perplexity.append(last_perplexity(Path(run) / "run"))
        result.bleu.append(known(scores, measure_of(run)))
        result.parameters.append(parameters_of(Path(run) / "run") / 1e6)
    return result


def full_cells(item: str) -> list[str]:
    """Return a row of cells: paper, this run and difference of three figures."""
    row = runs_of(item)[0]
    paper = TABLE3[row]
    result = result_of(item)
    cells = [row, paper.differs]
    for expected, values, form in (
        (paper.perplexity, result.perplexity, ".2f"),
        (paper.bleu, result.bleu, ".1f"),
        (paper.parameters, result.parameters, ".1f"),
    ):
        printed, _, difference = compared(expected, fmean(values), form)
        cells += [printed, spread(values, form), difference]
    return cells


def small_cells(item: str, base_item: str) -> list[str]:
    """Return a row of cells: this run, and the differences to base, here and in the paper."""
    row = runs_of(item)[0]
    paper, paper_base = TABLE3[row], TABLE3["base"]
    result, base = result_of(item), result_of(base_item)
    cells = [row, paper.differs, small_differences(row)]
    for values, base_values, printed in (
        (result.perplexity, base.perplexity, paper.perplexity - paper_base.perplexity),
        (result.bleu, base.bleu, paper.bleu - paper_base.bleu),
    ):
        difference = fmean(values) - fmean(base_values)
        cells += [spread(values, ".2f"), shown(difference, "+.2f"), f"{printed:+.2f}"]
    return [*cells, shown(fmean(result.parameters), ".2f")]


def small_differences(row: str) -> str:
    """Return the settings of a row at small scale that differ from the base model's."""
    if row == "E":
        return "positions=learned"
    differs = PRESETS[preset_of(row)].differs
    settings = small_sizes(row)
    for name in ("num_heads", "label_smoothing"):
        if name in differs:
            settings[name] = differs[name]
    return ", ".join(f"{name}={value}" for name, value in settings.items() if name in differs)


def print_table3(scale: str, names: str, note: str = "") -> None:
    items = names.split()
    how = f"Dev set, no averaging, beam 4, BLEU as {measure_of(runs_of(items[0])[0])}."
    if note:
        how += f" {note}"
    if any(len(runs_of(item)) > 1 for item in items):
        how += " Rows with several seeds: mean ± standard deviation."
    if scale == "full":
        print(f"Table 3: WMT14 English to German. {how}\n")
        header = ["row", "differs"]
        for name in ("PPL", "BLEU", "params"):
            header += [f"{name}, paper", f"{name}, this run", f"{name}, difference"]
        print_table(header, [full_cells(item) for item in items], text_columns=2)
    else:
        (base,) = [item for item in items if runs_of(item)[0] == "base"]
        print(
            f'Table 3 at small scale. {how} "To base": the row\'s difference to the base model.\n'
        )
        header = ["row", "in the paper", "here"]
        for name in ("PPL", "BLEU"):
            header += [name, f"{name}, to base", f"{name}, to base in the paper"]
        header.append("params (1e6)")
        print_table(header, [small_cells(item, base) for item in items], text_columns=3)


def items(scale: str, words: str) -> str:
    """Return the items of --rows."""
    items = read_items("row", list(TABLE3), words or " ".join(TABLE3))
    if scale == "small" and " base*" not in f" {items}":
        return f"base*1 {items}"  # with which the others are compared
    return items


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
