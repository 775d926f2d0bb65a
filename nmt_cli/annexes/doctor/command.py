"""`nmt doctor`: checks of the machine and of a run before it begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli.commands.train import component_flags
from nmt_cli.errors import UsageError
from nmt_cli.flags import Command
from nmt_cli.registry import option
from nmt_cli.training.settings import RunOptions


@dataclass(frozen=True)
class DoctorOptions(RunOptions):
    """Check devices, network, disk, locks, and with DATA the memory, time and resume of a run.

    Give the flags of nmt train, and start it with torchrun if the run will be. Exit code 1: the run
    would stop.
    """

    out: Path | None = option(
        None, "Directory of the run, or the one to hold it. [default: this one]", metavar="RUN"
    )
    price: float | None = option(
        None, "Price of a device for an hour, for the cost of the run.", minimum=0
    )
    translate: int | None = option(
        None,
        "Measure the translation of N lines, with a checkpoint in the place of DATA.",
        minimum=1,
        metavar="N",
    )
    input: Path | None = option(
        None, "Text like that of --translate. [default: random words]", metavar="FILE"
    )
    as_json: bool = option(False, "Print JSON.", names=("--json",))


def doctor(options: DoctorOptions, flags: Mapping[str, Any]) -> None:
    # Not at the top: it imports torch, which help must not.
    from nmt_cli.annexes.doctor.examination import examine, show

    if options.translate is None:
        if options.input is not None:
            raise UsageError("--input is text for --translate: give the number of lines")
        examine(options, flags, options.price, options.as_json)
        return
    from nmt_cli.annexes.doctor.translation import translation

    checkpoints = [Path(checkpoint) for checkpoint in options.data]
    device = flags.get("device", "auto")
    check = translation(checkpoints, device, options.translate, options.input, options.price)
    show([check], options.as_json)


EXAMPLES = [
    "nmt doctor --out runs",
    "nmt doctor data --preset transformer_base --out runs --price 2.5",
    "nmt doctor run --translate 200000 --input text.en --price 2.5",
]
command = Command(DoctorOptions, doctor, component_flags, EXAMPLES, needs_arguments=False)
HINTS = {"train": {"verify-resume": "use `nmt doctor DATA`"}}  # a flag of earlier versions
