"""`nmt score-trees`: labelled bracketing of trees against gold trees, as EVALB."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
    parameters = read_parameters(options.parameters) if options.parameters else COLLINS
    parameter_name = str(options.parameters or "COLLINS, built in")
    files = options.test, reference_file(options.gold)
    test_name, gold_name = ("standard input" if name == STANDARD_INPUT else name for name in files)
    test, gold = _read(files, test_name, gold_name)
    if options.gold_tags:
        test = [retagged(*pair) or pair[0] for pair in zip(test, gold, strict=True)]
    for name, lines in ((test_name, test), (gold_name, gold)):
        if any(map(_UNLABELLED.search, lines)):
            say(f"note: {name}: unlabelled brackets count, as in EVALB; write (TOP (S ...))")
    report = score_brackets(test, gold, parameters)
    _print_problems(report, test_name, gold_name)
    if report.stopped_at is not None:
        if options.per_sentence and not options.as_json:
            print(evalb_output(report), end="", flush=True)
        raise DataError(
            f"{test_name}:{report.stopped_at}: {len(report.problems)} errors, more than MAX_ERROR "
            f"{parameters.max_error} allows ({parameter_name}); correct these lines, or raise "
            "MAX_ERROR in a file for "
            "--evalb-parameters"
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
    """Return the report as `--json` prints it; percentages are rounded to two digits, as in EVALB."""
    everything, short, strict = (
        {name: round(value, 2) for name, value in found.items()}
        for found in (report.everything, report.short, report.strict)
    )
    found: dict[str, Any] = {
        "test": options.test,
        "reference": options.gold,
        "parameters": parameter_name,
        "gold_tags": options.gold_tags,
        **everything,
        "cutoff_length": report.cutoff_length,
        "short": short,
        "strict": {name: value for name, value in strict.items() if "crossing" not in name},
        "errors": [asdict(problem) for problem in report.problems],
    }
    if options.per_sentence:
        found["rows"] = [asdict(row) for row in report.rows]
    return found


def _read(files: tuple[str, str], test_name: str, gold_name: str) -> tuple[list[str], list[str]]:
    check_read_once(files)
    test, gold = (
        list(read_lines(None if name == STANDARD_INPUT else Path(name))) for name in files
    )
    if not test:
        raise DataError(f"{test_name}: empty; there are no trees to score")
    if len(test) != len(gold):
        raise DataError(
            f"{test_name} has {counted(len(test), 'line')} but {gold_name} has {len(gold):,}; each "
            "needs one tree a "
            "line, in the same order, and an empty line for a sentence without a parse"
        )
    return test, gold


def _print_problems(report: BracketReport, test_name: str, gold_name: str) -> None:
    for problem in report.problems[:_SHOWN_PROBLEMS]:
        say(
            f"{gold_name if problem.tree == 'gold' else test_name}:{problem.line}: "
            f"{problem.message}"
        )
    if (hidden := len(report.problems) - _SHOWN_PROBLEMS) > 0:
        say(f"... and {counted(hidden, 'more error')}")


def _warn_if_exclusion_raises(report: BracketReport) -> None:
    everything, strict = report.everything, report.strict
    if any(
        round(strict[name], 2) < round(everything[name], 2) for name in ("f1", "complete_match")
    ):
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
