"""`nmt score`: scores of translations against references, with signatures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from rich.console import Console

from nmt_cli.commands.held_out import reference_file
from nmt_cli.commands.score_tables import Report, parts_of_bleu
from nmt_cli.data.cleaning import SUBWORD_MARKS
from nmt_cli.errors import DataError, UsageError
from nmt_cli.files.nbest import read_nbest
from nmt_cli.files.text import STANDARD_INPUT, check_read_once, read_lines, without_compression
from nmt_cli.flags import Command
from nmt_cli.metrics.bleu import (
    DEFAULT,
    Measure,
    check_lengths,
    measures_of,
    metric_names,
    score_systems,
)
from nmt_cli.metrics.preparation import languages
from nmt_cli.metrics.significance import TESTS, paired_test
from nmt_cli.registry import REQUIRED, argument, entries, option
from nmt_cli.streams import say


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """Score translations against references: BLEU, chrF2 and others."""

    hypotheses: tuple[str, ...] = argument(
        "HYPOTHESES...",
        "Translations, plain or compressed (-: standard input). Several files are several systems.",
    )
    references: tuple[str, ...] = option(
        REQUIRED,
        "Reference translations. May be repeated. A run or prepared data: the targets of its test "
        "text.",
        metavar="FILE",
        names=("--ref",),
    )
    metrics: tuple[str, ...] = option(
        (),
        "Metric, may be repeated: bleu, chrf, ter, paper (the paper's BLEU), decomposition (the "
        "steps from sacreBLEU's BLEU to the paper's), all, exact, wer, cer, per, top-1, top-2, "
        "top-3, top-5, top-10, another name from docs/score.md, or MODULE:FUNCTION. Commas "
        "separate several. [default: bleu, chrf]",
        names=("--metric",),
        suggestions=metric_names,
    )
    target_language: str | None = option(
        None,
        "Language of the Moses tokenizer, which --metric paper uses. [default: the reference's "
        "file ending, else de]",
        metavar="LANG",
        names=("--target-lang",),
    )
    source: str | None = option(
        None, "Source sentences, for --metric MODULE:FUNCTION.", metavar="FILE"
    )
    group_by: str | None = option(
        None, "Also score each group of lines: a file with a label a line.", metavar="FILE"
    )
    per_line: bool = option(False, "Print the scores of each line instead, separated by tabs.")
    test: str | None = option(
        None, "Significance test of each system against the first.", choices=tuple(sorted(TESTS))
    )
    samples: int | None = option(
        None,
        "Resamples or trials of the test. [default: 1000 or 10000]",
        minimum=1,
        names=("--test-samples",),
        needs="test",
    )
    as_json: bool = option(False, "Print one JSON object.", names=("--json",))
    allow_subword_marks: bool = option(False, "Also score text that contains '@@' or U+2581.")


def run(options: ScoreOptions) -> None:
    """Score, and print the results to standard output.

    Raises:
        UsageError: flags do not fit together, or a metric, a test or a language is unknown.
        DataError: a file cannot be read, is not UTF-8, contains subword marks or has another number
            of lines.
    """
    options = replace(options, references=tuple(map(reference_file, options.references)))
    _check(options)
    metrics = [name for names in options.metrics for name in names.split(",")] or DEFAULT
    measures = measures_of(metrics, "de")
    language = _target_language(options, measures)
    nbest = any(measure.nbest for measure in measures)
    systems = [_read_segments(name, nbest) for name in options.hypotheses]
    references = [_read_segments(name) for name in options.references]
    sources: list[str] = []
    labels: list[str] = []
    others = []
    if options.source:
        name, sources = _read_segments(options.source)
        others.append((name, sources))
    if options.group_by:
        name, labels = _read_segments(options.group_by, mark=False)
        others.append((name, labels))
    check_lengths(others, references)
    if not options.allow_subword_marks:
        for name, lines in [*references, *systems]:
            _check_subword_marks(name, lines)
    comparisons = []
    with Console(stderr=True).status("scoring"):
        if options.test is not None:
            samples = options.samples or 0
            comparisons = paired_test(
                systems, references, options.test, metrics, language, samples, sources
            )
        _, first_reference = references[0]
        numbers = range(1, len(first_reference) + 1)
        groups = numbers if options.per_line else labels
        scores = score_systems(systems, references, metrics, language, sources, groups)
    for remarks in entries("nmt.remarks"):
        for remark in remarks(systems, references, scores):
            say(f"note: {remark}")
    uses_moses = any("|moses:" in score.signature for score in scores)
    report = Report(
        systems=[name for name, _ in systems],
        references=[name for name, _ in references],
        lines=len(numbers),
        target_language=language if uses_moses else None,
        scores=scores,
        comparisons=comparisons,
        groups=dict(sorted(Counter(labels).items())),
    )
    _print(report, options)


def _check(options: ScoreOptions) -> None:
    """Raise UsageError for files and flags that do not fit together."""
    others = [name for name in (options.source, options.group_by) if name]
    check_read_once([*options.hypotheses, *options.references, *others])
    for name, number in Counter(options.hypotheses).items():
        if number > 1:
            raise UsageError(f"{name} is given twice; give each file of translations once")
    if sum(map(bool, (options.test, options.group_by, options.per_line))) > 1:
        raise UsageError("--test, --group-by and --per-line cannot be used together")


def _print(report: Report, options: ScoreOptions) -> None:
    if options.as_json:
        print(json.dumps(report.as_object(), ensure_ascii=False, indent=2))
    elif options.per_line:
        for line in range(1, report.lines + 1):
            print("\t".join(f"{score.groups[line]:.4f}" for score in report.scores))
    else:
        print(report.as_text(), end="", flush=True)
        if len(report.systems) == 1 and report.scores[0].details:
            # Not a result: scripts take a score from each line of the results.
            say(parts_of_bleu(report.scores[0]))


def _target_language(options: ScoreOptions, measures: Sequence[Measure]) -> str:
    """Return the language for the Moses tokenizer: the flag, the reference's file ending, or de."""
    if options.target_language:
        return options.target_language
    if not any("moses" in measure.hypothesis for measure in measures):
        return "de"
    reference = options.references[0]
    ending = PurePath(without_compression(reference)).suffix.removeprefix(".")
    if ending in languages():
        return ending
    say(f"note: {reference} has no language ending: tokenized as German (de); see --target-lang")
    return "de"


def _read_segments(name: str, nbest: bool = False, mark: bool = True) -> tuple[str, list[str]]:
    """Return the name for messages and the lines of a file or, for "-", of standard input.

    Args:
        nbest: it is an n-best list. The outputs of a line are joined by line feeds.
        mark: keep a byte-order mark. sacreBLEU keeps it, so published scores include it.
    """
    path: Path | None = Path(name)
    if name == STANDARD_INPUT:
        path = None
        name = "standard input"
    if nbest:
        lines = []
        for candidates in read_nbest(path):
            lines.append("\n".join(text for _, text in candidates))
    else:
        lines = list(read_lines(path, keep_mark=mark))
    if not lines:
        raise DataError(f"{name}: the file is empty")
    return name, lines


def _check_subword_marks(name: str, lines: Sequence[str]) -> None:
    """Raise DataError at the first line that contains subword marks."""
    for number, line in enumerate(lines, 1):
        mark = SUBWORD_MARKS.search(line)
        if mark:
            raise DataError(
                f"{name}:{number}: the line contains subword marks ({mark[0]}), so its score would "
                "be far too high; join the subwords first, or pass --allow-subword-marks"
            )


command = Command(
    ScoreOptions,
    run,
    examples=[
        "nmt score test.translated --ref test.de",
        "nmt score test.translated --ref run",
        "nmt score test.translated --ref test.de --metric paper --json",
        "nmt score old.txt new.txt --ref test.de --test paired-bootstrap",
        "nmt score forms --ref forms.gold --metric exact,cer --group-by labels",
        "nmt score nbest.tsv --ref test.gold --metric top-1,top-3,top-5",
    ],
)
