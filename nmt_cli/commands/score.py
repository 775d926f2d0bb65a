"""`nmt score`: what translated files score against references, each figure with its full name and signature."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from nmt_cli.commands.score_input import Segments, check_counts, check_subword_marks, read_segments, remarks
from nmt_cli.commands.score_tables import Report, show
from nmt_cli.errors import UsageError
from nmt_cli.flags import Command
from nmt_cli.metrics.bleu import MAIN, decomposition, score_systems
from nmt_cli.metrics.preparation import languages
from nmt_cli.metrics.significance import TESTS, paired_test
from nmt_cli.registry import REQUIRED, argument, option

EVERYTHING = ("bleu", "chrf", "ter")
"""What one system is scored by if nothing is asked for; several systems are compared by `MAIN`, which is faster."""

_DEFAULT_LANGUAGE = "de"


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """Score translations against references: BLEU, chrF2, TER."""

    hypotheses: tuple[str, ...] = argument("HYPOTHESES...", "Translations, plain or .gz; - is stdin. Several: systems.")
    references: tuple[str, ...] = option(
        REQUIRED, "Reference translations; repeat for several.", metavar="FILE", names=("--ref",)
    )
    metrics: tuple[str, ...] = option(
        (), "paper, sacrebleu-13a, chrf, ... (repeat for several), or bleu, or all.", names=("--metric",)
    )
    target_language: str | None = option(
        None,
        "Language of the Moses tokenizer. [default: the reference's file ending, else de]",
        metavar="LANG",
        names=("--target-lang",),
    )
    test: str | None = option(None, "Significance test of each system against the first.", choices=tuple(sorted(TESTS)))
    samples: int | None = option(
        None, "Resamples or trials of the test. [default: 1000 or 10000]", minimum=1, names=("--test-samples",)
    )
    as_json: bool = option(False, "Print one JSON object.", names=("--json",))
    allow_subword_marks: bool = option(False, "Also score text that contains '@@' or U+2581.")


def run(request: ScoreOptions) -> None:
    """Scores and prints to standard output.

    Raises:
        UsageError: flags that do not fit together; an unknown metric, test or language.
        DataError: a file that cannot be read, is not UTF-8, holds subword marks or has another number of lines.
    """
    report = evaluate(request)
    if request.as_json:
        print(json.dumps(as_object(report), ensure_ascii=False, indent=2))
    else:
        show(report)


def evaluate(request: ScoreOptions) -> Report:
    """Everything that was asked for, computed."""
    if [*request.hypotheses, *request.references].count("-") > 1:
        raise UsageError("standard input, '-', can be read only once: name a file for the others")
    systems, references = _read(request.hypotheses), _read(request.references)
    _check(systems, references, request.allow_subword_marks)
    language = request.target_language or guess_language(request.references[0])
    metrics = request.metrics or (EVERYTHING if len(systems) == 1 else MAIN)
    named = [(system.name, system.lines) for system in systems]
    lines = [reference.lines for reference in references]
    with _progress() as progress:
        comparisons = []
        if request.test is not None:
            comparisons = paired_test(named, lines, request.test, metrics, language, request.samples or 0, progress)
        scores = score_systems(named, lines, metrics, language, progress)
    return Report(
        [system.name for system in systems],
        [reference.name for reference in references],
        len(lines[0]),
        language,
        scores,
        comparisons,
    )


def as_object(report: Report) -> dict[str, Any]:
    """The report as `--json` prints it."""
    found: dict[str, Any] = {
        "systems": report.systems,
        "references": report.references,
        "lines": report.lines,
        "target_language": report.target_language,
        "scores": [asdict(score) for score in report.scores],
        "decomposition": [row for system in report.systems for row in _changes(report, system)],
    }
    if report.comparisons:
        found["comparisons"] = [asdict(comparison) for comparison in report.comparisons]
    return found


def guess_language(reference: str) -> str:
    """The language that a file's ending names (`test.fr.gz`), or else German, the paper's first target language."""
    ending = PurePath(reference.removesuffix(".gz")).suffix.removeprefix(".")
    return ending if ending in languages() else _DEFAULT_LANGUAGE


def _changes(report: Report, system: str) -> Iterator[dict[str, Any]]:
    for row in decomposition([score for score in report.scores if score.system == system]):
        yield {
            "system": system,
            "change": row.change,
            "id": row.cased.id,
            "score": row.cased.score,
            "delta": row.cased_delta,
            "lowercased_score": row.lowercased.score,
            "lowercased_delta": row.lowercased_delta,
        }


def _read(names: Sequence[str]) -> list[Segments]:
    return [read_segments(name) for name in names]


def _check(systems: Sequence[Segments], references: Sequence[Segments], allow_subword_marks: bool) -> None:
    for segments in [*systems, *references]:
        if not allow_subword_marks:
            check_subword_marks(segments)
        for remark in remarks(segments):
            print(f"note: {remark}", file=sys.stderr)
    for segments in [*references[1:], *systems]:
        check_counts(segments, references[0])


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line on standard error, where a person looks on, that says what is being computed."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("scoring") as status:
        yield lambda what: status.update(f"scoring: {what}")


command = Command(
    ScoreOptions,
    run,
    examples=[
        "nmt score test.translated --ref test.de",
        "nmt score test.translated --ref test.de --metric sacrebleu-13a --json",
        "nmt score baseline.translated new.translated --ref test.de --test paired-bootstrap",
    ],
)
