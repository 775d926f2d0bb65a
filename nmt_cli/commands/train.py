"""`nmt train`: train a model, or resume a run."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli import registry
from nmt_cli.config import DEFAULT_COMPONENTS, Section, sections_of_run
from nmt_cli.errors import UsageError, main_rank_reports
from nmt_cli.flags import Command, components_in, value_of, values_of
from nmt_cli.presets import PRESETS
from nmt_cli.registry import option
from nmt_cli.training.settings import RunOptions, TrainingConfig


@dataclass(frozen=True)
class TrainOptions(RunOptions):
    """Train a model, or resume a run."""

    resume: Path | None = option(
        None, "Resume a run with its own data and settings.", metavar="RUN"
    )
    list_presets: bool = option(False, "List the presets.")
    dry_run: bool = option(
        False, "Show the configuration, the size, the cost and, with DATA, the memory."
    )
    vocab_size: int | None = option(
        None, "With --dry-run: vocabulary size, instead of DATA.", minimum=5
    )
    processes: int = option(1, "With --dry-run: processes, for the memory of one.", minimum=1)
    as_json: bool = option(
        False, "With --dry-run or --list-presets: print JSON.", names=("--json",)
    )


def run(options: TrainOptions, flags: Mapping[str, Any]) -> None:
    if options.vocab_size is not None and (options.data or not options.dry_run):
        raise UsageError("--vocab-size is for --dry-run without DATA")
    if options.processes > 1 and not options.dry_run:
        raise UsageError("--processes is for --dry-run; torchrun starts processes")
    if options.as_json and not (options.dry_run or options.list_presets):
        raise UsageError(
            "--json is for --dry-run and --list-presets; the metrics of a run are in metrics.jsonl"
        )
    if options.list_presets:
        show_presets(options.as_json)
        return
    from nmt_cli.commands.dry_run import dry_run  # not at the top: torch is not for help
    from nmt_cli.training.start import train, with_settings_of_run

    if options.resume is not None:
        with main_rank_reports():
            options = with_settings_of_run(options, options.resume)
    if options.dry_run:
        dry_run(options, flags, options.vocab_size, options.processes, options.as_json)
    else:
        train(options, flags)


def show_presets(as_json: bool) -> None:
    if as_json:
        presets = {
            name: {"about": preset.about, "aliases": preset.aliases, "differs": preset.differs}
            for name, preset in PRESETS.items()
        }
        print(json.dumps(presets, indent=2))
        return
    width = shutil.get_terminal_size().columns
    indented = textwrap.TextWrapper(
        width,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    for name, preset in PRESETS.items():
        names = ", ".join([name, *preset.aliases])
        print(textwrap.fill(f"{names}: {preset.about}", width, subsequent_indent="  "))
        if preset.differs:
            settings = [f"{key}={value}" for key, value in preset.differs.items()]
            print(indented.fill(" ".join(settings)))


def component_flags(words: Sequence[str]) -> dict[str, Section]:
    """Return the flags of the loop, and of the components that words, a preset or a file select."""
    registry.discover(values_of(words, "--import"))
    preset = value_of(words, "--preset")
    file = value_of(words, "--config")
    selected = components_in(words, DEFAULT_COMPONENTS)
    return sections_of_run(TrainingConfig, selected, preset, Path(file) if file else None)


command = Command(
    TrainOptions,
    run,
    component_flags,
    examples=[
        "nmt train data --out run",
        "nmt train --resume run --max-steps 200000",
        "nmt train data --out run --preset transformer_big --micro-batches 16",
        "nmt train data --out run --num-layers 3 --d-model 256 --num-heads 4",
        "nmt train data --dry-run --preset transformer_base",
        "nmt train data --out run --import my_module --optimizer my_optimizer",
    ],
)
