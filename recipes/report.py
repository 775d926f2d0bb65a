"""The table that ends a recipe: what was expected, and what came out, at every stage.

report.py RECIPE FOLDER SOURCE TARGET     with the files that the recipe left in FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure, and what it should be where that is known."""

    name: str
    got: str
    expected: str = ""
    good: bool | None = None


@dataclass(frozen=True)
class Made:
    """What a recipe left behind."""

    manifest: dict[str, Any]
    metrics: list[dict[str, Any]]
    parameters: int
    scores: list[dict[str, Any]]
    sources: list[str]
    hypotheses: list[str]
    references: list[str]


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def read_made(folder: Path) -> Made:
    data, run = folder / "data", folder / "run"
    return Made(
        manifest=json.loads((data / "manifest.json").read_text(encoding="utf-8")),
        metrics=[json.loads(line) for line in read_lines(run / "metrics.jsonl")],
        parameters=count_parameters(folder / "averaged" / "model.safetensors"),
        scores=json.loads((folder / "score.json").read_text(encoding="utf-8"))["scores"],
        sources=read_lines(data / "test.source.txt"),
        hypotheses=read_lines(folder / "hypotheses"),
        references=read_lines(data / "test.target.txt"),
    )


def count_parameters(weights: Path) -> int:
    """How many numbers a safetensors file holds, from its header alone."""
    with weights.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
    return sum(product(shape) for shape in shapes)


def product(shape: list[int]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result


def stages(made: Made, parameters: str, train: int, test: int) -> Iterator[Row]:
    """What every recipe shows: the data, the model, the training."""
    splits = made.manifest["splits"]
    pairs, lines = splits["train"]["read"], splits["test"]["sentences"]
    yield Row("training pairs", f"{pairs:,}", f"{train:,}", pairs == train)
    yield Row("training pairs after cleaning", f"{splits['train']['sentences']:,}")
    yield Row("test lines", f"{lines:,}", f"{test:,}", lines == test)
    yield Row("parameters", f"{made.parameters:,}", parameters)
    yield Row("steps", f"{made.metrics[-1]['step']:,}")
    yield Row("learning rate, highest", f"{max(record['lr'] for record in made.metrics):.2e}")
    valid = [r["validation_perplexity"] for r in made.metrics if r.get("validation_perplexity") is not None]
    yield Row("validation perplexity, best", f"{min(valid):.3f}" if valid else "none")
    yield Row("target tokens a second", f"{made.metrics[-1]['target_tokens_per_second'] or 0:,.0f}")


def score_rows(made: Made, expected: dict[str, float]) -> Iterator[Row]:
    """Every score by its short name; `show_names` says what they stand for."""
    for score in made.scores:
        least = expected.get(score["metric"])
        good = None if least is None else score["score"] >= least
        name = score["metric"] if score["metric"].startswith(("chrf", "ter")) else f"BLEU, {score['metric']}"
        yield Row(name, f"{score['score']:.2f}", "" if least is None else f"at least {least:g}", good)


def quickstart(made: Made, source: str, target: str) -> Iterator[Row]:
    yield from stages(made, "", train=26_117, test=1000)
    right = sum(h == r for h, r in zip(made.hypotheses, made.references, strict=True))
    share = 100 * right / len(made.references)
    yield Row("exact match, unseen numbers, %", f"{share:.1f}", "at least 95", share >= 95)
    yield from score_rows(made, {})


def multi30k(made: Made, source: str, target: str) -> Iterator[Row]:
    yield from stages(made, "about 2.6 million", train=29_000, test=1000)
    yield from score_rows(made, {"multi30k": 40.0} if target == "de" else {})


RECIPES: dict[str, Callable[[Made, str, str], Iterator[Row]]] = {"quickstart": quickstart, "multi30k": multi30k}


def show(rows: list[Row], title: str, console: Console) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column("expected", justify="right")
    table.add_column("got", justify="right")
    table.add_column("")
    for row in rows:
        table.add_row(row.name, row.expected, row.got, {None: "", True: "ok", False: "[red]no[/red]"}[row.good])
    console.print(table)


def show_names(made: Made, console: Console) -> None:
    """What each score is, so that nobody has to guess which BLEU it was."""
    for score in made.scores:
        console.print(f"  {score['metric']}: {score['name']}", markup=False, soft_wrap=True)
        console.print(f"      {score['signature']}", markup=False, soft_wrap=True)


def show_examples(made: Made, console: Console, count: int = 5) -> None:
    """A few translations; where one is wrong, what would have been right."""
    console.print("\nSome translations of the test set:\n")
    for source, hypothesis, reference in list(zip(made.sources, made.hypotheses, made.references, strict=True))[:count]:
        console.print(f"  {source}", markup=False, soft_wrap=True)
        console.print(f"  -> {hypothesis}", markup=False, soft_wrap=True)
        if hypothesis != reference:
            console.print(f"  reference: {reference}", markup=False, soft_wrap=True)
        console.print()


def main() -> int:
    recipe, folder, source, target = sys.argv[1:]
    made = read_made(Path(folder))
    rows = list(RECIPES[recipe](made, source, target))
    console = Console(highlight=False)
    show(rows, f"{recipe}, {source} to {target}", console)
    show_names(made, console)
    show_examples(made, console)
    return 1 if any(row.good is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
