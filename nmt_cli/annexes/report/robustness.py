"""Scores of the validation set with altered sources (`nmt report --robustness`)."""

from __future__ import annotations

from random import Random

from nmt_cli import registry
from nmt_cli.annexes.report.outputs import translator_of, validation_text
from nmt_cli.annexes.report.runs import RunFiles
from nmt_cli.annexes.report.settings import ReportOptions
from nmt_cli.errors import UsageError
from nmt_cli.streams import say


def robustness(run: RunFiles, options: ReportOptions) -> dict[str, float]:
    """Return a run's BLEU by the change of the source, of lower-cased outputs and references.

    The changes are `unchanged`, `two_spaces` between words, and those of the entry points of
    `nmt.noise`. A line is altered in the same way for all runs.

    Raises:
        NmtError: the task has no BLEU, the data have no validation set, or a file is missing or
            damaged.
    """
    task, _, sources, references = validation_text(run)
    if "bleu" not in task.measures:
        raise UsageError(f"{run.name}: --robustness is not for the task {task.name}")
    sources = sources[: options.sentences]
    altered = {"unchanged": sources, "two_spaces": [line.replace(" ", "  ") for line in sources]}
    for changes in registry.entries("nmt.noise"):
        for name, change in changes.items():
            altered[name] = [change(line, Random(line)) for line in sources]
    translator = translator_of(run.path / (options.checkpoint or ""), options)
    expected = [line.lower() for line in references[: len(sources)]]
    scores = {}
    for name, lines in altered.items():
        say(f"translating {len(lines):,} sentences with {run.name}: {name}")
        outputs = [line.lower() for line in translator.translate(lines)]
        scores[name] = task.evaluate(outputs, expected)["bleu"]
    return scores
