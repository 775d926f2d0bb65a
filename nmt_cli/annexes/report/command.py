"""`nmt report`: a page about one run, or about several side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nmt_cli import registry
from nmt_cli.annexes.report.settings import ReportOptions
from nmt_cli.commands.translate_options import check_output
from nmt_cli.errors import NmtError, UsageError, counted
from nmt_cli.files.opening import open_output
from nmt_cli.flags import Command
from nmt_cli.streams import say, warn

if TYPE_CHECKING:
    from nmt_cli.annexes.report.outputs import Validated
    from nmt_cli.annexes.report.runs import RunFiles


def report(options: ReportOptions) -> None:
    """Write the runs' figures as JSON, or translate their validation sets and write the page."""
    from nmt_cli.annexes.report.page import page
    from nmt_cli.annexes.report.runs import read_run
    from nmt_cli.training.run_directory import CONFIG

    if options.out is None and not options.as_json and not options.robustness:
        raise UsageError(
            "--out is missing: nmt report RUN --out report.html, or nmt report RUN --json"
        )
    runs = [read_run(path) for path in dict.fromkeys(options.runs)]
    check_output(options.out, runs[0].path / CONFIG)
    if options.robustness:
        print_robustness(runs, options)
        return
    if options.as_json:
        with open_output(options.out) as write:
            write(f"{json.dumps([run.as_object() for run in runs], indent=2)}\n".encode())
        return
    # Not the runs' imports: a page about a stranger's run executes nothing of it.
    registry.discover(options.imports)
    with open_output(options.out) as write:
        validated = validate_all(runs, options) if options.sentences else []
        names = ", ".join(run.name for run in runs)
        write(page("Training report", names, ["report", "attention"], data(runs, validated)))
    say(f"report on {counted(len(runs), 'run')}: {options.out}; open it in a browser")


def print_robustness(runs: Sequence[RunFiles], options: ReportOptions) -> None:
    """Print the scores of the runs for altered sources, as a table or as JSON."""
    from rich.console import Console

    from nmt_cli.annexes.report.robustness import robustness
    from nmt_cli.training.reporter import table

    if options.out is not None:
        raise UsageError("--robustness prints to standard output: --out cannot be used with it")
    registry.discover(options.imports)
    scores = {run.name: robustness(run, options) for run in runs}
    if options.as_json:
        print(json.dumps(scores, indent=2))
        return
    sources = next(iter(scores.values()))
    rows = [
        (source, *(f"{of_run[source]:.1f}" for of_run in scores.values())) for source in sources
    ]
    Console(markup=False, emoji=False).print(table(("source", *scores), rows))


def validate_all(runs: Sequence[RunFiles], options: ReportOptions) -> list[Validated]:
    """Return the outputs of the runs. Warn about a run whose data or checkpoints are missing."""
    from nmt_cli.annexes.report.outputs import validate

    validated = []
    for run in runs:
        try:
            validated.append(validate(run, options))
        except NmtError as error:
            warn(f"{run.name}: the report has no outputs of it: {error}")
    return validated


def data(runs: Sequence[RunFiles], systems: Sequence[Validated]) -> dict[str, Any]:
    """Return what the page shows of the runs and of the systems, the runs that have outputs."""
    from nmt_cli.annexes.report.outputs import comparison

    compared = []
    examples: dict[tuple[str, str], dict[str, Any]] = {}
    sentences = []  # with attention
    for system in systems:
        name = system.run.name
        if system.references == systems[0].references:
            compared.append(system)
        else:
            first = systems[0].run.name
            warn(f"{name}: another validation set than {first}, so their scores are not compared")
        for example in system.examples:
            pair = example.source, example.reference
            new = {"source": example.source, "reference": example.reference, "runs": []}
            of_run = {"run": name, "stages": example.stages, "output": example.output}
            examples.setdefault(pair, new)["runs"].append(of_run)
            if example.attention:
                sentences.append(example.attention)
    return {
        "runs": [run.for_page() for run in runs],
        "outputs": comparison(compared) if compared else None,
        "examples": list(examples.values()),
        "sentences": sentences or None,
    }


command = Command(
    ReportOptions,
    report,
    examples=[
        "nmt report run --out report.html",
        "nmt report base big --checkpoint averaged --out report.html",
        "nmt report runs/* --json",
        "nmt report base noisy --robustness",
    ],
)
