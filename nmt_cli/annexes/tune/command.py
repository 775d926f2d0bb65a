"""`nmt tune`: settings for prepared data, found by short trainings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli.commands.train import component_flags
from nmt_cli.flags import Command
from nmt_cli.registry import option
from nmt_cli.training.settings import RunOptions


@dataclass(frozen=True)
class TuneOptions(RunOptions):
    """Find the size, dropout, learning rate and size of an update by short trainings.

    The best third of them are trained anew and longer, and so on. Flags of nmt train that are given
    are fixed. With --preset or --init-from, so is the size. --best-by selects, by default the loss.
    """

    out: Path = option(
        Path("tuned"), "Directory of the trials. An earlier one goes on.", metavar="DIR"
    )
    minutes: float = option(20.0, "Minutes that all trials may take.", minimum=0.1)
    train_minutes: float | None = option(
        None, "Minutes of the training to come. [default: --minutes]", minimum=0.1
    )


def tune(options: TuneOptions, flags: Mapping[str, Any]) -> None:
    # Not at the top: it imports torch, which help must not.
    from nmt_cli.annexes.tune.search import search

    minutes = options.minutes
    search(options, flags, options.out, minutes, options.train_minutes or minutes)


EXAMPLES = [
    "nmt tune data --minutes 20",
    "nmt tune data --minutes 60 --train-minutes 300 --best-by bleu --norm pre",
    "nmt tune data --preset iwslt14 --norm pre --out tuned",
]
command = Command(TuneOptions, tune, component_flags, EXAMPLES)
