"""The table of a WMT14 recipe: the paper, this run, the difference. Markdown on standard output.

paper_tables.py en de|fr base|big AVERAGED [NOTE]     in the recipe's directory

And what table2.py and table3.py share with it. A figure that is not known is NaN.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from report import count_parameters, perplexities, print_table, read_json, read_metrics, read_scores

from nmt_cli.errors import UsageError


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
    """A language pair of the paper's Table 2."""

    name: str
    measure: str  # the metric of `nmt score` nearest to the paper's BLEU
    bleu: dict[str, float]
    perplexity: dict[str, float]
    vocabulary: int
    remark: str


PAIRS = {
    "de": PaperPair(
        "English to German",
        "get-ende-bleu-quotes",
        {"base": 27.3, "big": 28.4},
        {"base": 4.92, "big": 4.33},
        37_000,
        "Parameters and dev perplexity are from its Table 3.",
    ),
    "fr": PaperPair(
        "English to French",
        "multi-bleu",
        {"base": 38.1, "big": 41.8},
        {},
        32_000,
        "41.8 for the big model is from its later version; the first one says 41.0. Parameters are "
        "from its Table 3, which is about English to German.",
    ),
}


def last_perplexity(run: Path) -> float:
    values = perplexities(read_metrics(run))
    return values[-1] if values else math.nan


def parameters_of(run: Path) -> int:
    return count_parameters(max(run.glob("checkpoints/step-*")) / "model.safetensors")


def known(figures: Mapping[str, Any], name: str) -> float:
    """Return a figure of a JSON object, or NaN if it has none."""
    value = figures.get(name)
    return math.nan if value is None else float(value)


def scores_of(path: Path) -> dict[str, float]:
    return {score["metric"]: score["score"] for score in read_scores(path)}


def wmt14_rows(target: str, model: str, averaged: int) -> Iterator[list[str]]:
    """Yield the figures of all stages of a recipe for Table 2, in order."""
    pair = PAIRS[target]
    paper = MODELS[model]
    run = Path(model) / "run"
    manifest = read_json(Path("data/manifest.json"))
    summary = read_json(run / "summary.json")
    metrics = read_metrics(run)
    for name, count in read_json(Path("text/counts.json")).items():
        yield row(f"lines, {name} ({count['split']})", count["expected"], count["lines"])
    train = manifest["splits"]["train"]
    if target == "fr":
        yield row("training pairs before the filter", 40.8e6, train["read"])
        yield row(
            "training pairs after it (35.5 million by the same filter elsewhere)",
            36e6,
            train["sentences"],
        )
    else:
        yield row("training pairs", 4.5e6, train["sentences"])
    yield row("vocabulary", pair.vocabulary, manifest["task"]["vocabularies"]["source"]["size"])
    rate = summary.get("peak_learning_rate") or max(record["lr"] for record in metrics)
    yield row("parameters", paper.parameters, parameters_of(run))
    yield row("peak learning rate", paper.learning_rate, rate, ".2e")
    yield row("steps", paper.steps, metrics[-1]["step"])
    yield row("devices", 8, known(summary, "devices"))
    yield row("hours x devices", paper.device_hours, known(summary, "device_hours"), ",.2f")
    yield row(
        "FLOPs: hours x devices x sustained rate",
        paper.flops,
        known(summary, "flops_as_table2"),
        ".2e",
    )
    yield row("FLOPs: counted from the model's shapes", math.nan, known(summary, "flops"), ".2e")
    yield row("model-FLOP utilisation", math.nan, known(summary, "model_flop_utilisation"), ".1%")
    yield row(
        "dev perplexity a subword, last checkpoint",
        known(pair.perplexity, model),
        last_perplexity(run),
        ".3f",
    )
    yield row("checkpoints averaged", paper.averaged, averaged)
    for metric, score in scores_of(Path(model) / "score.json").items():
        bleu = pair.bleu[model] if metric == pair.measure else math.nan
        yield row(f"score, {metric}", bleu, score, ".2f")


def row(name: str, paper: float, got: float, form: str = ",.0f") -> list[str]:
    return [name, *compared(paper, got, form)]


def compared(paper: float, got: float, form: str) -> list[str]:
    """Return three cells: the paper, this run, the difference."""
    difference = "0" if got == paper else shown(got - paper, "+" + form)
    return [shown(paper, form), shown(got, form), difference]


def shown(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)


def spread(values: Sequence[float], form: str) -> str:
    """Return the mean and, of several values, their standard deviation: `38.10 ± 0.21`."""
    mean = statistics.fmean(values)
    if len(values) == 1 or math.isnan(mean):
        return shown(mean, form)
    return f"{mean:{form}} ± {statistics.stdev(values):{form}}"


def runs_of(item: str) -> list[str]:
    """Return the directories of an item's runs, one for each seed: of `x*3`, x, x-2 and x-3."""
    name, _, seeds = item.partition("*")
    return [name, *(f"{name}-{seed}" for seed in range(2, int(seeds or 1) + 1))]


def read_items(kind: str, names: Sequence[str], words: str) -> str:
    """Return the items of a recipe for several models: "base E*2" is "base*1 E*2".

    Raises:
        UsageError: a name is unknown or repeated, or a number of seeds is not positive.
    """
    items: dict[str, str] = {}
    for word in words.split():
        name, star, count = word.partition("*")
        if name not in names or name in items:
            raise UsageError(
                f"there is no {kind} {name}, or it is given twice; known: {' '.join(names)}"
            )
        if star and (not count.isdecimal() or int(count) == 0):
            raise UsageError(f"{kind} {name} needs a positive number of seeds, not {count!r}")
        items[name] = count or "1"
    return " ".join(f"{name}*{count}" for name, count in items.items())


def main(_: str, target: str, model: str, averaged: str, note: str = "") -> None:
    pair = PAIRS[target]
    title = f"WMT14 {pair.name}, {model} model."
    if note:
        title += f" {note}"
    print(f"{title}\n")
    rows = list(wmt14_rows(target, model, int(averaged)))
    print_table(["", "paper (lines: as published)", "this run", "difference"], rows)
    print(
        f"\nThe paper's BLEU is compared with {pair.measure}, the nearest measure. {pair.remark}\n"
    )
    for score in read_scores(Path(model) / "score.json"):
        print(f"- {score['metric']}: {score['name']}; `{score['signature']}`")


if __name__ == "__main__":
    main(*sys.argv[1:])
