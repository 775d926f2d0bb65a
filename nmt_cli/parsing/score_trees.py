"""`nmt score-trees`: labelled bracketing of parsed files, as EVALB counts and prints it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nmt_cli.commands.score_input import Segments, read_segments
from nmt_cli.errors import DataError, UsageError
from nmt_cli.flags import Command
from nmt_cli.parsing.evalb import BracketReport, Problem, Scores, score_brackets
from nmt_cli.parsing.evalb_parameters import COLLINS, Parameters, read_parameters
from nmt_cli.parsing.evalb_table import evalb_output, summary
from nmt_cli.parsing.trees import retagged
from nmt_cli.registry import REQUIRED, argument, option

METRIC = "brackets"

_SHOWN_PROBLEMS = 10
_BYTE_ORDER_MARK = "\ufeff"
_CROSSING = ("average_crossing", "no_crossing", "two_or_less_crossing", "crossing_brackets")


@dataclass(frozen=True, kw_only=True)
class ScoreTreesOptions:
    """Score parse trees against gold trees, as EVALB does."""

    test: str = argument("TREES", "Parsed sentences, one tree a line; - is stdin.")
    gold: str = option(REQUIRED, "Gold trees, line by line.", metavar="FILE", names=("--ref",))
    parameters: Path | None = option(
        None, "EVALB's parameter file. [default: the settings of COLLINS.prm]", names=("--evalb-parameters",)
    )
    per_sentence: bool = option(False, "Print EVALB's table of sentences.")
    gold_tags: bool = option(False, "Put the reference's tags over the words first, as is the custom.")
    as_json: bool = option(False, "Print one JSON object.", names=("--json",))


def run(request: ScoreTreesOptions) -> None:
    """Scores and prints to standard output; what is wrong with sentences goes to standard error.

    Raises:
        DataError: a file that cannot be read, another number of lines, or more sentences in error than the parameters
            allow (the original stops there, too).
    """
    if request.test == request.gold == "-":
        raise UsageError("standard input, '-', can be read only once: name a file for the other")
    parameters = read_parameters(request.parameters, _note) if request.parameters else COLLINS
    test, gold = _read(request.test), _read(request.gold)
    if len(test.lines) != len(gold.lines):
        raise DataError(
            f"{test.name} has {len(test.lines)} lines but {gold.name} has {len(gold.lines)}; each needs one tree a "
            "line, in the same order, and an empty line where the parser found none"
        )
    tested = _with_gold_tags(test, gold) if request.gold_tags else test.lines
    report = score_brackets(tested, gold.lines, parameters)
    _tell_wrappers(report, test.name, gold.name)
    _tell_problems(report, test.name, gold.name)
    _print(report, request, parameters, test.name)
    _warn_of_flattery(report)


def as_object(report: BracketReport, request: ScoreTreesOptions) -> dict[str, Any]:
    """The report as `--json` prints it: percentages with EVALB's two digits, and the counts behind them."""
    found: dict[str, Any] = {
        "metric": METRIC,
        "test": request.test,
        "reference": request.gold,
        "parameters": _parameter_name(request),
        "gold_tags": request.gold_tags,
        **_scores(report.everything),
        "cutoff_length": report.cutoff_length,
        "short": _scores(report.short),
        "strict": {name: value for name, value in _scores(report.strict).items() if name not in _CROSSING},
        "errors": [asdict(problem) for problem in report.problems],
    }
    if request.per_sentence:
        found["rows"] = [asdict(row) for row in report.rows]
    return found


def _read(name: str) -> Segments:
    """The lines of a file of trees; a byte-order mark is no part of the first."""
    segments = read_segments(name)
    first, *others = segments.lines
    return Segments(segments.name, [first.removeprefix(_BYTE_ORDER_MARK), *others])


def _with_gold_tags(test: Segments, gold: Segments) -> list[str]:
    """The test's lines under the right tags; says where they could not be put on, empty lines left aside."""
    tagged = [retagged(*pair) for pair in zip(test.lines, gold.lines, strict=True)]
    left = [n for n, (line, new) in enumerate(zip(test.lines, tagged, strict=True), 1) if new is None and line.strip()]
    if left:
        where = f"in line {left[0]}" if len(left) == 1 else f"the first in line {left[0]}"
        _note(
            f"--gold-tags: {_counted(len(left), 'sentence')} of {test.name}, {where}, got no tags: no sound tree there "
            f"or in {gold.name}, or other words"
        )
    return [line if new is None else new for line, new in zip(test.lines, tagged, strict=True)]


def _print(report: BracketReport, request: ScoreTreesOptions, parameters: Parameters, name: str) -> None:
    if report.stopped_at is not None:
        if request.per_sentence and not request.as_json:
            print(evalb_output(report), end="")
            sys.stdout.flush()
        raise DataError(
            f"{name}:{report.stopped_at}: {len(report.problems)} errors, more than MAX_ERROR {parameters.max_error} "
            f"allows ({_parameter_name(request)}); mend these lines, or give a file that raises MAX_ERROR to "
            "--evalb-parameters"
        )
    if request.as_json:
        print(json.dumps(as_object(report, request), ensure_ascii=False, indent=2))
    elif request.per_sentence:
        print(evalb_output(report), end="")
    else:
        print("\n".join(summary(report)))


def _parameter_name(request: ScoreTreesOptions) -> str:
    return str(request.parameters) if request.parameters else "COLLINS, built in"


def _scores(scores: Scores) -> dict[str, float]:
    return {
        "recall": round(scores.recall, 2),
        "precision": round(scores.precision, 2),
        "f1": round(scores.f1, 2),
        "complete_match": round(scores.complete_match, 2),
        "average_crossing": round(scores.average_crossing, 2),
        "no_crossing": round(scores.no_crossing, 2),
        "two_or_less_crossing": round(scores.two_or_less_crossing, 2),
        "tagging_accuracy": round(scores.tagging_accuracy, 2),
        "sentences": scores.sentences,
        "error_sentences": scores.errors,
        "skipped_sentences": scores.skipped,
        "valid_sentences": scores.valid,
        "matched_brackets": scores.matched,
        "gold_brackets": scores.gold,
        "test_brackets": scores.test,
        "crossing_brackets": scores.crossing,
        "words": scores.words,
        "correct_tags": scores.correct_tags,
    }


def _tell_wrappers(report: BracketReport, test: str, gold: str) -> None:
    for name, lines in {test: report.test_unlabelled, gold: report.gold_unlabelled}.items():
        if lines:
            _note(
                f"{name}: in {_counted(lines, 'line')} a bracket without a label, ( (S ...), counts as one of its own, "
                "as in EVALB; write (TOP (S ...))"
            )


def _tell_problems(report: BracketReport, test: str, gold: str) -> None:
    """The first errors, and where there were too many the one that stopped the scoring."""
    shown, rest = report.problems[:_SHOWN_PROBLEMS], report.problems[_SHOWN_PROBLEMS:]
    last = rest[-1:] if report.stopped_at is not None else []
    hidden = len(rest) - len(last)

    def tell(problem: Problem) -> None:
        print(f"{gold if problem.tree == 'gold' else test}:{problem.line}: {problem.message}", file=sys.stderr)

    for problem in shown:
        tell(problem)
    if hidden:
        print(f"... and {hidden} more", file=sys.stderr)
    for problem in last:
        tell(problem)


def _warn_of_flattery(report: BracketReport) -> None:
    everything, strict = report.everything, report.strict
    pairs = {
        "F1": (round(everything.f1, 2), round(strict.f1, 2)),
        "complete match": (round(everything.complete_match, 2), round(strict.complete_match, 2)),
    }
    worse = [
        f"{name} is {one:.2f} without them, and {other:.2f} if they count as entirely wrong"
        for name, (one, other) in pairs.items()
        if other < one
    ]
    if worse:
        print(
            f"warning: EVALB leaves {_counted(everything.errors, 'sentence')} in error and {everything.skipped} "
            f"skipped out, which flatters the score: {'; '.join(worse)}",
            file=sys.stderr,
        )


def _given(flags: Mapping[str, object]) -> str:
    """The names of the flags that were given."""
    return ", ".join(name for name, value in flags.items() if value)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number:,} {what}s"


def _note(remark: str) -> None:
    print(f"note: {remark}", file=sys.stderr)


command = Command(
    ScoreTreesOptions,
    run,
    examples=[
        "nmt score-trees parsed.trees --ref gold.trees",
        "nmt score-trees parsed.trees --ref gold.trees --gold-tags --per-sentence",
    ],
)
