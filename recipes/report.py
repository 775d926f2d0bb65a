"""The table at the end of a recipe: expected and actual figures of every stage.

report.py quickstart|multi30k SOURCE TARGET OUT

The exit code is 1 if a figure is not as expected.

And what the other scripts share with it: readers of nmt's files, Markdown tables, errors of users.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt_cli.errors import NmtError

EXACT = "exact match, unseen numbers, %"


@contextmanager
def user_errors() -> Iterator[None]:
    """Print an error that the user can correct without a traceback, and exit with its code."""
    try:
        yield
    except (NmtError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 1))


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    content = "".join(f"{line}\n" for line in lines)
    path.write_text(content, encoding="utf-8", newline="\n")


def read_json(path: Path) -> Any:
    """Read a JSON file. Return {} if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def read_scores(path: Path) -> list[dict[str, Any]]:
    """Read the scores of `nmt score --json`: metric, name, score, signature."""
    scores: list[dict[str, Any]] = read_json(path).get("scores", [])
    return scores


def read_metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(run / "metrics.jsonl")]


def perplexities(metrics: list[dict[str, Any]]) -> list[float]:
    """Return the validation perplexities of a run, per subword."""
    values = [record.get("validation_perplexity") for record in metrics]
    return [value for value in values if value is not None]


def count_parameters(weights: Path, part: str = "") -> int:
    """Count the numbers in the tensors of a safetensors file whose names begin with `part`."""
    with weights.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    count = 0
    for name, entry in header.items():
        if name.startswith(part):
            count += math.prod(entry["shape"])
    return count


def print_table(header: list[str], rows: list[list[str]], text_columns: int = 1) -> None:
    """Print an aligned Markdown table. All but the first columns are numbers."""
    columns = []
    for number, column in enumerate(zip(header, *rows, strict=True)):
        title, *cells = column
        width = max(len(cell) for cell in column)
        if number < text_columns:
            lines = [title, "-" * width, *cells]
            columns.append([line.ljust(width) for line in lines])
        else:
            lines = [title, "-" * (width - 1) + ":", *cells]
            columns.append([line.rjust(width) for line in lines])
    for line in zip(*columns, strict=True):
        print("| " + " | ".join(line) + " |")


def rows(train: int, least: dict[str, float]) -> Iterator[tuple[str, str, str, bool]]:
    """Yield name, expected and actual value of each figure, and whether it is as expected.

    Args:
        train: the expected number of training pairs.
        least: the expected scores, by their names.
    """
    splits = read_json(Path("data/manifest.json"))["splits"]
    metrics = read_metrics(Path("run"))
    pairs = splits["train"]["read"]
    lines = splits["test"]["sentences"]
    valid = perplexities(metrics)
    yield "training pairs", f"{train:,}", f"{pairs:,}", pairs == train
    yield "training pairs after cleaning", "", f"{splits['train']['sentences']:,}", True
    yield "test lines", "1,000", f"{lines:,}", lines == 1000
    yield "parameters", "", f"{count_parameters(Path('averaged/model.safetensors')):,}", True
    yield "steps", "", f"{metrics[-1]['step']:,}", True
    yield "learning rate, highest", "", f"{max(record['lr'] for record in metrics):.2e}", True
    yield "validation perplexity, best", "", f"{min(valid):.3f}" if valid else "none", True
    yield "target tokens a second", "", f"{metrics[-1]['target_tokens_per_second'] or 0:,.0f}", True
    scores = {}
    if EXACT in least:
        hypotheses = read_lines(Path("hypotheses"))
        references = read_lines(Path("data/test.target.txt"))
        equal = [a == b for a, b in zip(hypotheses, references, strict=True)]
        scores[EXACT] = 100 * sum(equal) / len(references)
    for score in read_scores(Path("score.json")):
        scores[f"score, {score['metric']}"] = score["score"]
    for name, value in scores.items():
        expected = f"at least {least[name]:g}" if name in least else ""
        yield name, expected, f"{value:.2f}", value >= least.get(name, 0.0)


def main(recipe: str, source: str, target: str, out: str) -> int:
    nmt = os.path.relpath(Path(sys.executable).with_name("nmt"))
    averaged = os.path.relpath(Path(out, "averaged"))
    os.chdir(out)
    train = 29_000
    least = {}
    if recipe == "quickstart":
        train = 26_117
        least[EXACT] = 95.0
    elif target == "de":
        least["score, multi30k"] = 40.0
    figures = list(rows(train, least))
    all_good = all(good for *_, good in figures)
    print(f"{recipe}, {source} to {target}\n")
    table = [[*cells, "" if good else "no"] for *cells, good in figures]
    print_table(["", "expected", "got", ""], table)
    print()
    for score in read_scores(Path("score.json")):
        print(f"- {score['metric']}: {score['name']}; `{score['signature']}`")
    print("\nTranslations of the test set:\n")
    sentences = read_lines(Path("data/test.source.txt"))
    hypotheses = read_lines(Path("hypotheses"))
    references = read_lines(Path("data/test.target.txt"))
    texts = list(zip(sentences, hypotheses, references, strict=True))
    for sentence, hypothesis, reference in texts[:5]:
        print(f"  {sentence}\n  -> {hypothesis}")
        print("" if hypothesis == reference else f"  reference: {reference}\n")
    print(f"Translate a sentence of your own:\n\n  {nmt} translate {averaged} --interactive")
    if not all_good:
        print("A figure is not as expected: see the table.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
