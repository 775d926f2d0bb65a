"""Tables 2 and 3: the paper, this run, the difference. Markdown on standard output.

paper_tables.py wmt14 SOURCE TARGET base|big AVERAGED [NOTE]  Table 2, in the recipe's directory
paper_tables.py table3 full|small "ROW ..." [NOTE]            Table 3, in the recipe's directory
paper_tables.py rows                                         the names of Table 3's rows
paper_tables.py flags ROW STEPS                              flags of nmt train that make the row small
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from report import count_parameters, perplexities, read_json, read_metrics, read_scores

from nmt_cli.presets import PRESETS


class Figure(NamedTuple):
    """A line of the table. Unknown values are None."""

    name: str
    paper: float | None
    got: float | None
    format: str = ",.0f"


class PaperModel(NamedTuple):
    """A model of the paper's Table 2."""

    parameters: float
    learning_rate: float
    steps: int
    averaged: int
    device_hours: float
    flops: float


MODELS = {
    "base": PaperModel(65e6, 512**-0.5 * 4000**-0.5, 100_000, 5, 12 * 8, 3.3e18),
    "big": PaperModel(213e6, 1024**-0.5 * 4000**-0.5, 300_000, 20, 3.5 * 24 * 8, 2.3e19),
}


class PaperPair(NamedTuple):
    """A language pair of the paper's Table 2. `measure` is the metric of `nmt score` nearest to the paper's BLEU."""

    name: str
    measure: str
    bleu: dict[str, float]
    perplexity: dict[str, float]
    pairs: float | None
    vocabulary: int | None
    remark: str


PAIRS = {
    ("en", "de"): PaperPair(
        "English to German",
        "get-ende-bleu-quotes",
        {"base": 27.3, "big": 28.4},
        {"base": 4.92, "big": 4.33},
        4.5e6,
        37_000,
        "Parameters and dev perplexity are from its Table 3.",
    ),
    ("en", "fr"): PaperPair(
        "English to French",
        "multi-bleu",
        {"base": 38.1, "big": 41.8},
        {},
        36e6,
        32_000,
        "41.8 for the big model is from its later version; the first one says 41.0. Parameters are from its Table 3, "
        "which is about English to German.",
    ),
}
"""Another pair has a table without the paper's figures for the pair."""


class PaperRow(NamedTuple):
    """A row of Table 3: perplexity a subword, BLEU, and millions of parameters where the paper prints them."""

    differs: str
    perplexity: float
    bleu: float
    parameters: float | None = None


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
TABLE3_MEASURE = PAIRS["en", "de"].measure
SMALLER = {"num_layers": 2, "d_model": 4, "d_ff": 4, "d_k": 4, "d_v": 4}
"""Divisors of the sizes in the small version of Table 3; h, P_drop and eps_ls stay."""
PAPERS_SIZES = {"num_layers": 6, "d_model": 512, "d_ff": 2048}


def preset_of(row: str) -> str:
    return f"transformer_{row}" if row in ("base", "big") else f"table3_{row}"


def small_sizes(row: str) -> dict[str, int]:
    """Return the sizes of a row at small scale."""
    differs = {name: value for name, value in PRESETS[preset_of(row)].differs.items() if name in SMALLER}
    return {name: value // SMALLER[name] for name, value in {**PAPERS_SIZES, **differs}.items()}


def small_flags(row: str, steps: int) -> list[str]:
    """Return the flags that make a row small.

    The big model trains three times as many steps, as in the paper. The rate peaks after a quarter of the steps, at
    0.003 for the base model.
    """
    steps = 3 * steps if row == "big" else steps
    warmup = max(1, steps // 4)
    scale = 0.003 * (PAPERS_SIZES["d_model"] / SMALLER["d_model"] * warmup) ** 0.5
    flags = {
        **small_sizes(row),
        "batch_tokens": 2048,
        "max_steps": steps,
        "warmup_steps": warmup,
        "learning_rate_scale": f"{scale:.6g}",
        "save_every": max(1, steps // 4),
        "keep_last": 1,
        "log_every": max(1, steps // 20),
    }
    return [word for name, value in flags.items() for word in ("--" + name.replace("_", "-"), str(value))]


def last_perplexity(run: Path) -> float | None:
    return next(reversed(perplexities(read_metrics(run))), None)


def parameters_of(run: Path) -> int:
    return count_parameters(max(run.glob("checkpoints/step-*")) / "model.safetensors")


def scores_of(pair: PaperPair, model: str) -> list[dict[str, Any]]:
    """Return the scores, without those of English to German for another pair."""
    scores = read_scores(Path(model) / "score.json")
    return [score for score in scores if pair is PAIRS["en", "de"] or "ende" not in score["metric"]]


def wmt14_figures(pair: PaperPair, target: str, model: str, averaged: int) -> Iterator[Figure]:
    """Yield the figures of all stages of a recipe for Table 2, in order."""
    manifest, run = read_json(Path("data/manifest.json")), Path(model) / "run"
    for name, count in read_json(Path("text/counts.json")).items():
        yield Figure(f"lines, {name} ({count['split']})", count["expected"], count["lines"])
    train = manifest["splits"]["train"]
    if target == "fr":
        yield Figure("training pairs before the filter", 40.8e6, train["read"])
        yield Figure("training pairs after it (35.5 million by the same filter elsewhere)", 36e6, train["sentences"])
    else:
        yield Figure("training pairs", pair.pairs, train["sentences"])
    yield Figure("vocabulary", pair.vocabulary, manifest["task"]["vocabularies"]["source"]["size"])
    paper, summary, metrics = MODELS[model], read_json(run / "summary.json"), read_metrics(run)
    rate = summary.get("peak_learning_rate") or max(record["lr"] for record in metrics)
    yield Figure("parameters", paper.parameters, parameters_of(run))
    yield Figure("peak learning rate", paper.learning_rate, rate, ".2e")
    yield Figure("steps", paper.steps, metrics[-1]["step"])
    yield Figure("devices", 8, summary.get("devices"))
    yield Figure("hours x devices", paper.device_hours, summary.get("device_hours"), ",.2f")
    yield Figure("FLOPs: hours x devices x sustained rate", paper.flops, summary.get("flops_as_table2"), ".2e")
    yield Figure("FLOPs: counted from the model's shapes", None, summary.get("flops"), ".2e")
    yield Figure("model-FLOP utilisation", None, summary.get("model_flop_utilisation"), ".1%")
    yield Figure("dev perplexity a subword, last checkpoint", pair.perplexity.get(model), last_perplexity(run), ".3f")
    yield Figure("checkpoints averaged", paper.averaged, averaged)
    for score in scores_of(pair, model):
        known = pair.bleu.get(model) if score["metric"] == pair.measure else None
        yield Figure(f"score, {score['metric']}", known, score["score"], ".2f")


def shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def compared(paper: float | None, got: float | None, form: str) -> list[str]:
    """Return three cells: the paper, this run, the difference."""
    difference = None if paper is None or got is None else got - paper
    return [shown(paper, form), shown(got, form), "0" if difference == 0 else shown(difference, "+" + form)]


def row_result(row: str) -> tuple[float | None, float | None, float]:
    """Return perplexity, BLEU and millions of parameters of a trained row."""
    scores = {score["metric"]: score["score"] for score in read_scores(Path(row) / "dev-score.json")}
    run = Path(row) / "run"
    return last_perplexity(run), scores.get(TABLE3_MEASURE), parameters_of(run) / 1e6


def full_cells(row: str) -> list[str]:
    """Return a row of cells: paper, this run and difference of three figures."""
    paper, cells = TABLE3[row], [row, TABLE3[row].differs]
    for expected, got, form in zip(paper[1:], row_result(row), (".2f", ".1f", ".1f"), strict=True):
        cells += compared(expected, got, form)
    return cells


def small_cells(row: str) -> list[str]:
    """Return a row of cells: this run, and the difference to the base model in this run and in the paper."""
    got, base = row_result(row), row_result("base")
    sizes = PRESETS[preset_of(row)].differs
    small = [f"{name}={value}" for name, value in small_sizes(row).items() if name in sizes]
    kept = [f"{name}={value}" for name, value in sizes.items() if name in ("num_heads", "dropout", "label_smoothing")]
    cells = [row, TABLE3[row].differs, ", ".join(small + kept) + ("positions=learned" if row == "E" else "")]
    for value, base_value, paper, papers_base in zip(
        got[:2], base[:2], TABLE3[row][1:3], TABLE3["base"][1:3], strict=True
    ):
        cells.append(shown(value, ".2f"))
        cells.append("" if value is None or base_value is None else f"{value - base_value:+.2f}")
        cells.append(f"{paper - papers_base:+.2f}")
    return [*cells, f"{got[2]:.2f}"]


def print_table(header: list[str], rows: list[list[str]], text_columns: int = 1) -> None:
    """Print an aligned Markdown table. All but the first columns are numbers."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * width if i < text_columns else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    for cells in (header, rule, *rows):
        aligned = [f"{c:{'<' if i < text_columns else '>'}{widths[i]}}" for i, c in enumerate(cells)]
        print("| " + " | ".join(aligned) + " |")


def print_wmt14(source: str, target: str, model: str, averaged: str, note: str = "") -> None:
    pair = PAIRS.get((source, target)) or PaperPair(f"{source} to {target}", "", {}, {}, None, None, "")
    print(f"WMT14 {pair.name}, {model} model.{' ' * bool(note)}{note}\n")
    figures = wmt14_figures(pair, target, model, int(averaged))
    rows = [[figure.name, *compared(figure.paper, figure.got, figure.format)] for figure in figures]
    print_table(["", "paper (lines: as published)", "this run", "difference"], rows)
    if pair.measure:
        print(f"\nThe paper's BLEU is compared with {pair.measure}, the nearest measure. {pair.remark}")
    else:
        print("\nThe paper has no figures for this language pair, and its parameters are for English to German.")
    print()
    for score in scores_of(pair, model):
        print(f"- {score['metric']}: {score['name']}; `{score['signature']}`")


def print_table3(scale: str, names: str, note: str = "") -> None:
    how = f"Dev set, no averaging, beam 4, BLEU as {TABLE3_MEASURE}.{' ' * bool(note)}{note}"
    rows = names.split()
    if scale == "full":
        print(f"Table 3: WMT14 English to German. {how}\n")
        three = ("paper", "this run", "difference")
        header = ["row", "differs", *(f"{name}, {which}" for name in ("PPL", "BLEU", "params") for which in three)]
        print_table(header, [full_cells(row) for row in rows], text_columns=2)
    else:
        print(f'Table 3 at small scale. {how} "To base": the row\'s difference to the base model.\n')
        three = ("", ", to base", ", to base in the paper")
        header = ["row", "in the paper", "here", *(name + which for name in ("PPL", "BLEU") for which in three)]
        print_table([*header, "params (1e6)"], [small_cells(row) for row in rows], text_columns=3)


def main() -> int:
    command, *arguments = sys.argv[1:]
    if command == "wmt14":
        print_wmt14(*arguments)
    elif command == "table3":
        print_table3(*arguments)
    elif command == "rows":
        print("\n".join(TABLE3))
    else:
        print("\n".join(small_flags(arguments[0], int(arguments[1]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
