"""`nmt score-trees`: labelled bracketing of trees against gold trees, as EVALB."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.annexes.parsing.evalb import score_brackets
from nmt_cli.annexes.parsing.evalb_parameters import COLLINS, read_parameters
from nmt_cli.annexes.parsing.evalb_scores import BracketReport, evalb_output, summary
from nmt_cli.annexes.parsing.trees import retagged
from nmt_cli.commands.held_out import reference_file
from nmt_cli.errors import DataError, counted
from nmt_cli.files.text import STANDARD_INPUT, check_read_once, read_lines
from nmt_cli.flags import Command
from nmt_cli.registry import REQUIRED, argument, option
from nmt_cli.streams import say, warn

_SHOWN_PROBLEMS = 10
_UNLABELLED = re.compile(r"\(\s*\((?!\s*\))")


@dataclass(frozen=True, kw_only=True)
class ScoreTreesOptions:
    """Score parse trees against gold trees, as EVALB does."""

    test: str = argument("TREES", "Parsed sentences, one tree a line (-: standard input).")
    gold: str = option(
        REQUIRED,
        "Gold trees, one a line, in the same order, or a run or prepared data with test text.",
        metavar="FILE",
        names=("--ref",),
    )
    parameters: Path | None = option(
        None,
        "EVALB parameter file. [default: the settings of COLLINS.prm]",
        names=("--evalb-parameters",),
    )
    per_sentence: bool = option(False, "Print EVALB's table of sentences.")
    gold_tags: bool = option(
        False, "First replace the part-of-speech tags by the tags of the gold trees."
    )
    as_json: bool = option(False, "Print one JSON object.", names=("--json",))


def run(options: ScoreTreesOptions) -> None:
    """Print the scores to standard output, and errors of sentences to standard error.

    Raises:
        DataError: a file cannot be read, the numbers of lines differ, or there are more errors than
            the parameters allow (EVALB stops there, too).
    """
    if options.parameters is None:
        parameters = COLLINS
        parameter_name = "COLLINS, built in"
    else:
        parameters = read_parameters(options.parameters)
        parameter_name = str(options.parameters)
    test, gold = _read(options)
    trees = test.lines
    if options.gold_tags:
        pairs = zip(test.lines, gold.lines, strict=True)
        trees = [retagged(tree, gold_tree) or tree for tree, gold_tree in pairs]
    for name, lines in ((test.name, trees), (gold.name, gold.lines)):
        if any(_UNLABELLED.search(line) for line in lines):
            say(f"note: {name}: unlabelled brackets count, as in EVALB; write (TOP (S ...))")
    report = score_brackets(trees, gold.lines, parameters)
    _print_problems(report, test.name, gold.name)
    if report.stopped_at is not None:
        if options.per_sentence and not options.as_json:
            print(evalb_output(report), end="", flush=True)
        raise DataError(
            f"{test.name}:{report.stopped_at}: {len(report.problems)} errors, more than MAX_ERROR "
            f"{parameters.max_error} allows ({parameter_name}); correct these lines, or raise "
            "MAX_ERROR in a file for --evalb-parameters"
        )
    if options.as_json:
        print(json.dumps(as_object(report, options, parameter_name), ensure_ascii=False, indent=2))
    elif options.per_sentence:
        print(evalb_output(report), end="")
    else:
        print(summary(report), end="")
    _warn_if_exclusion_raises(report)


def as_object(
    report: BracketReport, options: ScoreTreesOptions, parameter_name: str
) -> dict[str, Any]:
    """Return the report as `--json` prints it, rounded to two digits, as in EVALB."""
    strict = _rounded(report.strict)
    # The crossing brackets of excluded sentences are unknown.
    strict = {name: value for name, value in strict.items() if "crossing" not in name}
    content: dict[str, Any] = {
        "test": options.test,
        "reference": options.gold,
        "parameters": parameter_name,
        "gold_tags": options.gold_tags,
        **_rounded(report.everything),
        "cutoff_length": report.cutoff_length,
        "short": _rounded(report.short),
        "strict": strict,
        "errors": [asdict(problem) for problem in report.problems],
    }
    if options.per_sentence:
        content["rows"] = [asdict(row) for row in report.rows]
    return content


def _rounded(scores: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in scores.items()}


class _Trees(NamedTuple):
    """A file of trees."""

    name: str  # in messages
    lines: list[str]


def _read(options: ScoreTreesOptions) -> tuple[_Trees, _Trees]:
    """Return the parsed trees and the gold trees."""
    gold_file = reference_file(options.gold)
    check_read_once((options.test, gold_file))
    test = _read_trees(options.test)
    gold = _read_trees(gold_file)
    if not test.lines:
        raise DataError(f"{test.name}: empty; there are no trees to score")
    if len(test.lines) != len(gold.lines):
        raise DataError(
            f"{test.name} has {counted(len(test.lines), 'line')} but {gold.name} has "
            f"{len(gold.lines):,}; each needs one tree a line, in the same order, and an empty "
            "line for a sentence without a parse"
        )
    return test, gold


def _read_trees(file: str) -> _Trees:
    if file == STANDARD_INPUT:
        return _Trees("standard input", list(read_lines(None)))
    return _Trees(file, list(read_lines(Path(file))))


def _print_problems(report: BracketReport, test_name: str, gold_name: str) -> None:
    names = {"test": test_name, "gold": gold_name}
    for problem in report.problems[:_SHOWN_PROBLEMS]:
        say(f"{names[problem.tree]}:{problem.line}: {problem.message}")
    hidden = len(report.problems) - _SHOWN_PROBLEMS
    if hidden > 0:
        say(f"... and {counted(hidden, 'more error')}")


def _warn_if_exclusion_raises(report: BracketReport) -> None:
    everything = _rounded(report.everything)
    strict = _rounded(report.strict)
    if strict["f1"] < everything["f1"] or strict["complete_match"] < everything["complete_match"]:
        excluded = counted(len(report.rows) - int(everything["valid_sentences"]), "sentence")
        warn(
            f"EVALB excludes {excluded}; counted as entirely wrong, F1 is {strict['f1']:.2f} and "
            f"complete match {strict['complete_match']:.2f}"
        )


command = Command(
    ScoreTreesOptions,
    run,
    examples=[
        "nmt score-trees parsed.trees --ref gold.trees",
        "nmt score-trees parsed.trees --ref gold.trees --gold-tags --per-sentence",
    ],
)
