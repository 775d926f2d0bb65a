"""The table at the end of a recipe: expected and actual figures of every stage.

report.py quickstart|multi30k SOURCE TARGET OUT     the exit code is 1 if a figure is not as expected

And what the other scripts share with it: readers of nmt's files, Markdown tables, errors of users.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
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
    return [
        r["validation_perplexity"] for r in metrics if r.get("validation_perplexity") is not None
    ]


def count_parameters(weights: Path, part: str = "") -> int:
    """Count the numbers in the tensors of a safetensors file whose names begin with `part`, from
    its header.
    """
    with weights.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(
        math.prod(entry["shape"])
        for name, entry in header.items()
        if name.startswith(part) and name != "__metadata__"
    )


def print_table(header: list[str], rows: list[list[str]], text_columns: int = 1) -> None:
    """Print an aligned Markdown table. All but the first columns are numbers."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = [
        "-" * width if i < text_columns else "-" * (width - 1) + ":"
        for i, width in enumerate(widths)
    ]
    for cells in (header, rule, *rows):
        aligned = [
            f"{c:{'<' if i < text_columns else '>'}{widths[i]}}" for i, c in enumerate(cells)
        ]
        print("| " + " | ".join(aligned) + " |")


def rows(train: int, least: dict[str, float]) -> Iterator[tuple[str, str, str, bool]]:
    """Yield name, expected and actual value of each figure, and whether it is as expected.

    Args:
        train: the expected number of training pairs.
        least: the expected scores, by their names.
    """
    splits, metrics = read_json(Path("data/manifest.json"))["splits"], read_metrics(Path("run"))
    pairs, lines, valid = (
        splits["train"]["read"],
        splits["test"]["sentences"],
        perplexities(metrics),
    )
    yield "training pairs", f"{train:,}", f"{pairs:,}", pairs == train
    yield "training pairs after cleaning", "", f"{splits['train']['sentences']:,}", True
    yield "test lines", "1,000", f"{lines:,}", lines == 1000
    yield "parameters", "", f"{count_parameters(Path('averaged/model.safetensors')):,}", True
    yield "steps", "", f"{metrics[-1]['step']:,}", True
    yield "learning rate, highest", "", f"{max(record['lr'] for record in metrics):.2e}", True
    yield "validation perplexity, best", "", f"{min(valid):.3f}" if valid else "none", True
    yield "target tokens a second", "", f"{metrics[-1]['target_tokens_per_second'] or 0:,.0f}", True
    hypotheses, references = (
        read_lines(Path("hypotheses")),
        read_lines(Path("data/test.target.txt")),
    )
    same = sum(
        hypothesis == reference
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    found = {EXACT: 100 * same / len(references)} if EXACT in least else {}
    found |= {
        f"score, {score['metric']}": score["score"] for score in read_scores(Path("score.json"))
    }
    for name, value in found.items():
        expected = f"at least {least[name]:g}" if name in least else ""
        yield name, expected, f"{value:.2f}", value >= least.get(name, 0.0)


def main(recipe: str, source: str, target: str, out: str) -> int:
    nmt, averaged = (
        os.path.relpath(path)
        for path in (Path(sys.executable).with_name("nmt"), Path(out, "averaged"))
    )
    os.chdir(out)
    if recipe == "quickstart":
        figures = list(rows(26_117, {EXACT: 95.0}))
    else:
        figures = list(rows(29_000, {"score, multi30k": 40.0} if target == "de" else {}))
    print(f"{recipe}, {source} to {target}\n")
    print_table(
        ["", "expected", "got", ""], [[*cells, "" if good else "no"] for *cells, good in figures]
    )
    print()
    for score in read_scores(Path("score.json")):
        print(f"- {score['metric']}: {score['name']}; `{score['signature']}`")
    print("\nTranslations of the test set:\n")
    files = (Path("data/test.source.txt"), Path("hypotheses"), Path("data/test.target.txt"))
    for sentence, hypothesis, reference in list(zip(*map(read_lines, files), strict=True))[:5]:
        print(f"  {sentence}\n  -> {hypothesis}")
        print("" if hypothesis == reference else f"  reference: {reference}\n")
    print(f"Translate a sentence of your own:\n\n  {nmt} translate {averaged} --interactive")
    if not all(good for *_, good in figures):
        print("A figure is not as expected: see the table.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
