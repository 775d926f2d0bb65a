"""The options of `nmt train` beside the settings of a run, and those that other commands share with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nmt_cli.flags import IMPORTS_HELP
from nmt_cli.presets import PRESETS
from nmt_cli.registry import argument, option


@dataclass(frozen=True)
class RunOptions:
    """The data of a run, and where its settings are from."""

    data: tuple[str, ...] = argument("DATA[*WEIGHT]...", "Prepared data: one --out of `nmt prepare`, or several.", ())
    out: Path | None = option(None, "Directory of the run. An earlier run is resumed.", metavar="RUN")
    init_from: Path | None = option(
        None, "Start from the weights of a checkpoint, or of a run (its newest checkpoint).", metavar="CHECKPOINT"
    )
    new_vocabulary: bool = option(
        False, "With --init-from: the data may have another vocabulary. The weights of pieces that both have are kept."
    )
    preset: str | None = option(None, "A named model (nmt train --list-presets).", choices=PRESETS, metavar="NAME")
    config: Path | None = option(None, "Read settings from a TOML, YAML or JSON file.")
    imports: tuple[str, ...] = option((), IMPORTS_HELP, metavar="MODULE", names=("--import",))


@dataclass(frozen=True)
class TrainOptions(RunOptions):
    """Train a model, or resume a run."""

    resume: Path | None = option(None, "Resume a run with its own data and settings.", metavar="RUN")
    list_presets: bool = option(False, "List the presets.")
    dry_run: bool = option(False, "Show the configuration, the size, the cost and, with DATA, the memory.")
    vocab_size: int | None = option(None, "With --dry-run: vocabulary size, instead of DATA.", minimum=5)
    processes: int = option(1, "With --dry-run: processes, for the memory of one.", minimum=1)
    as_json: bool = option(False, "With --dry-run or --list-presets: print JSON.", names=("--json",))
