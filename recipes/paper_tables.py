"""The table of a WMT14 recipe: the paper, this run, the difference. Markdown on standard output.

paper_tables.py SOURCE TARGET base|big AVERAGED [NOTE]     in the recipe's directory

And what table2.py and table3.py share with it.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from report import count_parameters, perplexities, read_json, read_metrics, read_scores

from nmt_cli.errors import UsageError


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


def runs_of(item: str) -> list[str]:
    """Return the directories of an item's runs, one for each seed: of `x*3`, x, x-2 and x-3."""
    name, _, seeds = item.partition("*")
    return [name if seed == 1 else f"{name}-{seed}" for seed in range(1, int(seeds or 1) + 1)]


def read_items(kind: str, known: Sequence[str], words: str, seeds: str) -> str:
    """Return the items of a recipe for several models, each with its number of seeds: "base*1 E*2".

    Args:
        words: names, to be trained with `seeds` seeds, and NAME*N, with N; separated by spaces or commas.

    Raises:
        UsageError: a name is unknown or repeated, or a number of seeds is not positive.
    """
    items: dict[str, str] = {}
    for word in words.replace(",", " ").split():
        name, star, count = word.partition("*")
        count = count if star else seeds
        if name not in known:
            raise UsageError(f"there is no {kind} {name}; known: {' '.join(known)}")
        if name in items:
            raise UsageError(f"{kind} {name} is given twice")
        if not count.isdecimal() or int(count) == 0:
            raise UsageError(f"{kind} {name} needs a positive number of seeds, not {count!r}")
        items[name] = count
    return " ".join(f"{name}*{count}" for name, count in items.items())


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean, or None if a value is unknown."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def spread(values: Sequence[float | None], form: str) -> str:
    """Return the mean and, of several values, their standard deviation: `38.10 ± 0.21`."""
    known = [value for value in values if value is not None]
    middle = mean(values)
    if middle is None or len(known) == 1:
        return shown(middle, form)
    return f"{middle:{form}} ± {statistics.stdev(known):{form}}"


def compared(paper: float | None, got: float | None, form: str) -> list[str]:
    """Return three cells: the paper, this run, the difference."""
    difference = None if paper is None or got is None else got - paper
    return [shown(paper, form), shown(got, form), "0" if difference == 0 else shown(difference, "+" + form)]


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


def main() -> int:
    print_wmt14(*sys.argv[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
