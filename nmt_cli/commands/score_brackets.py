"""`nmt score --metric brackets`: labelled bracketing of parsed files, as EVALB counts and prints it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nmt_cli.commands.score_input import read_segments
from nmt_cli.data.trees import with_tags_of
from nmt_cli.errors import DataError, UsageError
from nmt_cli.metrics.brackets import BracketReport, Scores, score_brackets
from nmt_cli.metrics.brackets_table import evalb_output, summary
from nmt_cli.metrics.evalb_parameters import COLLINS, Parameters, read_parameters

METRIC = "brackets"

_SHOWN_PROBLEMS = 10
_WRAPPER_NOTE = (
    "an outermost bracket without a label, ( (S ...), counts as a bracket of its own in EVALB; write (TOP (S ...))"
)


@dataclass(frozen=True)
class BracketRequest:
    """What `nmt score --metric brackets` was asked.

    Args:
        test: file of parsed sentences, one tree a line, an empty line where there is none; "-" is standard input.
        gold: file of the right trees, line by line.
        parameters: file of EVALB's settings; None means those of COLLINS.prm.
        per_sentence: print EVALB's table above the summary.
        gold_tags: put the right tags over the words of each parse before it is scored, as is the custom.
        as_json: print one object instead.
    """

    test: str
    gold: str
    parameters: Path | None = None
    per_sentence: bool = False
    gold_tags: bool = False
    as_json: bool = False


def request(
    tests: Sequence[str],
    golds: Sequence[str],
    metrics: Sequence[str],
    parameters: Path | None,
    per_sentence: bool,
    gold_tags: bool,
    as_json: bool,
) -> BracketRequest:
    """The request that the command line makes.

    Raises:
        UsageError: other metrics are asked for besides, or other than one file of each kind is named.
    """
    if METRIC not in metrics:
        raise UsageError(f"--evalb-parameters, --per-sentence and --gold-tags go with --metric {METRIC}")
    if set(metrics) != {METRIC}:
        raise UsageError(f"--metric {METRIC} compares trees, so it is computed by itself; ask for the others apart")
    if len(tests) != 1 or len(golds) != 1:
        raise UsageError(f"--metric {METRIC} compares one file of trees with one --ref; score several one by one")
    if tests[0] == golds[0] == "-":
        raise UsageError("standard input, '-', can be read only once: name a file for the other")
    return BracketRequest(tests[0], golds[0], parameters, per_sentence, gold_tags, as_json)


def run(request: BracketRequest) -> None:
    """Scores and prints to standard output; what is wrong with sentences goes to standard error.

    Raises:
        DataError: a file that cannot be read, another number of lines, or more sentences in error than the parameters
            allow (the original stops there, too).
    """
    parameters = read_parameters(request.parameters) if request.parameters else COLLINS
    test, gold = read_segments(request.test), read_segments(request.gold)
    if len(test.lines) != len(gold.lines):
        raise DataError(
            f"{test.name} has {len(test.lines)} lines but {gold.name} has {len(gold.lines)}; each needs one tree a "
            "line, in the same order, and an empty line where the parser found none"
        )
    for segments in (test, gold):
        if any(line.lstrip(" \t").startswith(("( ", "((")) for line in segments.lines):
            print(f"note: {segments.name}: {_WRAPPER_NOTE}", file=sys.stderr)
    tested = list(map(with_tags_of, test.lines, gold.lines)) if request.gold_tags else test.lines
    report = score_brackets(tested, gold.lines, parameters)
    _tell_problems(report, test.name)
    _print(report, request, parameters, test.name)
    _warn_of_flattery(report)


def as_object(report: BracketReport, request: BracketRequest) -> dict[str, Any]:
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
        "strict": _scores(report.strict),
        "errors": [asdict(problem) for problem in report.problems],
    }
    if request.per_sentence:
        found["rows"] = [asdict(row) for row in report.rows]
    return found


def _print(report: BracketReport, request: BracketRequest, parameters: Parameters, name: str) -> None:
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


def _parameter_name(request: BracketRequest) -> str:
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


def _tell_problems(report: BracketReport, name: str) -> None:
    for problem in report.problems[:_SHOWN_PROBLEMS]:
        print(f"{name}:{problem.line}: {problem.message}", file=sys.stderr)
    hidden = len(report.problems) - _SHOWN_PROBLEMS
    if hidden > 0:
        print(f"... and {hidden} more", file=sys.stderr)


def _warn_of_flattery(report: BracketReport) -> None:
    everything, strict = report.everything, report.strict
    if round(strict.f1, 2) < round(everything.f1, 2):
        print(
            f"warning: EVALB leaves {everything.errors} sentences in error and {everything.skipped} skipped ones out, "
            f"which flatters the score: F1 is {everything.f1:.2f} without them, and {strict.f1:.2f} if they count as "
            "entirely wrong",
            file=sys.stderr,
        )
