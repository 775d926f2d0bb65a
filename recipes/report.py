"""The table at the end of a recipe: expected and actual figures of every stage.

report.py quickstart|multi30k SOURCE TARGET OUT     the exit code is 1 if a figure is not as expected
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table


class Row(NamedTuple):
    """A figure, and the expected one if it is known."""

    name: str
    got: str
    expected: str = ""
    good: bool | None = None


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def read_json(path: Path) -> Any:
    """Read a JSON file; an empty object if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def read_scores(path: Path) -> list[dict[str, Any]]:
    """Read the scores of `nmt score --json`: metric, name, score, signature."""
    scores: list[dict[str, Any]] = read_json(path).get("scores", [])
    return scores


def read_metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(run / "metrics.jsonl")]


def perplexities(metrics: list[dict[str, Any]]) -> list[float]:
    """Return the validation perplexities of a run, per subword."""
    return [r["validation_perplexity"] for r in metrics if r.get("validation_perplexity") is not None]


def count_parameters(weights: Path) -> int:
    """Count the numbers in a safetensors file, from its header."""
    with weights.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def training_rows(parameters: str, train: int, test: int) -> Iterator[Row]:
    """Yield the rows about data, model and training."""
    splits = read_json(Path("data/manifest.json"))["splits"]
    metrics = read_metrics(Path("run"))
    pairs, lines = splits["train"]["read"], splits["test"]["sentences"]
    yield Row("training pairs", f"{pairs:,}", f"{train:,}", pairs == train)
    yield Row("training pairs after cleaning", f"{splits['train']['sentences']:,}")
    yield Row("test lines", f"{lines:,}", f"{test:,}", lines == test)
    yield Row("parameters", f"{count_parameters(Path('averaged/model.safetensors')):,}", parameters)
    yield Row("steps", f"{metrics[-1]['step']:,}")
    yield Row("learning rate, highest", f"{max(record['lr'] for record in metrics):.2e}")
    valid = perplexities(metrics)
    yield Row("validation perplexity, best", f"{min(valid):.3f}" if valid else "none")
    yield Row("target tokens a second", f"{metrics[-1]['target_tokens_per_second'] or 0:,.0f}")


def rows(recipe: str, target: str, scores: list[dict[str, Any]]) -> Iterator[Row]:
    least = {}
    if recipe == "quickstart":
        yield from training_rows("", train=26_117, test=1000)
        pairs = list(zip(read_lines(Path("hypotheses")), read_lines(Path("data/test.target.txt")), strict=True))
        share = 100 * sum(hypothesis == reference for hypothesis, reference in pairs) / len(pairs)
        yield Row("exact match, unseen numbers, %", f"{share:.1f}", "at least 95", share >= 95)
    else:
        yield from training_rows("about 2.6 million", train=29_000, test=1000)
        least = {"multi30k": 40.0} if target == "de" else {}
    for score in scores:
        metric, value = score["metric"], score["score"]
        expected = f"at least {least[metric]:g}" if metric in least else ""
        yield Row(f"score, {metric}", f"{value:.2f}", expected, value >= least[metric] if metric in least else None)


def main() -> int:
    recipe, source, target, out = sys.argv[1:]
    nmt, averaged = (os.path.relpath(path) for path in (Path(sys.executable).with_name("nmt"), Path(out, "averaged")))
    os.chdir(out)
    console = Console(highlight=False)
    scores = read_scores(Path("score.json"))
    figures = list(rows(recipe, target, scores))
    table = Table("", title=f"{recipe}, {source} to {target}", title_justify="left")
    table.add_column("expected", justify="right")
    table.add_column("got", justify="right")
    table.add_column("")
    for row in figures:
        table.add_row(row.name, row.expected, row.got, {None: "", True: "ok", False: "[red]no[/red]"}[row.good])
    console.print(table)
    lines = []
    for score in scores:
        lines += [f"  {score['metric']}: {score['name']}", f"      {score['signature']}"]
    lines.append("\nTranslations of the test set:\n")
    files = (Path("data/test.source.txt"), Path("hypotheses"), Path("data/test.target.txt"))
    for sentence, hypothesis, reference in list(zip(*map(read_lines, files), strict=True))[:5]:
        lines += [f"  {sentence}", f"  -> {hypothesis}"]
        lines += [f"  reference: {reference}"] if hypothesis != reference else []
        lines.append("")
    lines.append(f"Translate a sentence of your own:\n\n  {nmt} translate {averaged} --interactive")
    console.print("\n".join(lines), markup=False, soft_wrap=True)
    if any(row.good is False for row in figures):
        print("A figure is not as expected: see the table.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
