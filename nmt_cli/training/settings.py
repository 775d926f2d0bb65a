"""The flags of `nmt train`: where a run starts from, and the settings of the training loop."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from nmt_cli.errors import UsageError, shown
from nmt_cli.flags import import_option
from nmt_cli.presets import PRESETS
from nmt_cli.registry import argument, option


@dataclass(frozen=True)
class RunOptions:
    """The data of a run, and where its settings are from."""

    data: tuple[str, ...] = argument(
        "DATA[*WEIGHT]...", "Prepared data: one --out of `nmt prepare`, or several.", ()
    )
    out: Path | None = option(
        None, "Directory of the run. An earlier run is resumed.", metavar="RUN"
    )
    init_from: Path | None = option(
        None,
        "Start from the weights of a checkpoint, or of a run (its newest checkpoint).",
        metavar="CHECKPOINT",
    )
    preset: str | None = option(
        None,
        "A named model (nmt train --list-presets).",
        metavar="NAME",
        suggestions=lambda: PRESETS,
    )
    config: Path | None = option(None, "Read settings from a TOML, YAML or JSON file.")
    imports: tuple[str, ...] = import_option()


@dataclass(frozen=True)
class TrainingConfig:
    """The settings of the training loop."""

    batch_tokens: int = option(
        25_000,
        "Maximum source tokens, and target tokens, per update over all devices (section 5.1).",
        minimum=1,
    )
    batch_sentences: int | None = option(
        None, "Maximum sentences per update, too. [default: no limit]", minimum=1, metavar="N"
    )
    micro_batches: int | None = option(
        None, "Number of micro-batches per update over all devices. [default: automatic]", minimum=1
    )
    max_steps: int = option(100_000, "Number of updates.", minimum=1, may_change=True)
    max_epochs: int | None = option(
        None,
        "Stop after N times through the data, if --max-steps does not come first.",
        minimum=1,
        metavar="N",
        may_change=True,
    )
    seed: int = option(1, "Seed of weights, batches and dropout.", minimum=0, maximum=2**63 - 1)
    precision: str = option(
        "auto",
        "Precision of matrix products; auto is bfloat16 where the device is faster with it.",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    clip_norm: float = option(
        0.0, "Largest gradient norm. 0 means no clipping, as in the paper.", minimum=0.0
    )
    save_every: str | int = option(
        "1500", "Steps between checkpoints, or minutes such as 10m.", may_change=True
    )
    keep_last: int = option(
        20, "Number of checkpoints to keep besides the best.", minimum=1, may_change=True
    )
    validate_every: str | int | None = option(
        None,
        "Steps or minutes between validations. [default: before each checkpoint]",
        may_change=True,
    )
    validation_bleu: bool = option(
        False,
        "Translate the validation set greedily at each validation, and score it.",
        may_change=True,
    )
    best_by: str = option(
        "loss",
        "Metric that selects the best checkpoint and resets --patience: loss, or one of nmt score, "
        "of greedy outputs. Others may follow, separated by commas, and are shown.",
        metavar="NAME,...",
    )
    patience: int | None = option(
        None,
        "Stop after N validations without improvement. [default: never]",
        minimum=1,
        metavar="N",
        may_change=True,
    )
    log_every: int = option(100, "Steps between log lines.", minimum=1, may_change=True)
    gradient_checkpointing: bool = option(
        False,
        "Compute the activations of layers again in the backward pass, for less memory (not "
        "compiled).",
        may_change=True,
    )
    compile: bool | None = option(
        None,
        "Compile the layers of a Transformer on a GPU. [default: of models of at least 20 million "
        "parameters, or 100 million with all kernels]",
        may_change=True,
    )
    cuda_graphs: bool = option(
        True, "Replay the updates of a Transformer on a GPU as CUDA graphs.", may_change=True
    )
    kernels: bool | None = option(
        None,
        "Compute parts of an update on a GPU by kernels in Triton. [default: if they work there]",
        may_change=True,
    )
    model_parallel: bool = option(
        False, "Divide what the model allows among the processes of torchrun.", may_change=True
    )
    device: str = option("auto", "auto, cpu, cuda or cuda:N.", may_change=True)
    deterministic: bool = option(
        False, "Use deterministic kernels only, and float32 on a CPU.", may_change=True
    )
    sustained_tflops: float | None = option(
        None,
        "Sustained single-precision TFLOP/s of a device, for Table 2's cost. [default: the "
        "paper's, else measured]",
        minimum=1e-6,
        may_change=True,
    )
    peak_tflops: float | None = option(
        None,
        "Peak TFLOP/s of a device, for the utilisation. [default: the paper's, else measured]",
        minimum=1e-6,
        may_change=True,
    )
    non_finite_budget: int = option(
        10,
        "Number of updates that may be skipped because loss or gradient is not finite.",
        minimum=0,
        may_change=True,
    )
    timeout_minutes: float = option(
        10.0,
        "Minutes to wait for a process that does not respond.",
        minimum=0.01,
        maximum=10080,
        may_change=True,
    )

    def __post_init__(self) -> None:
        self.intervals()

    @property
    def measures(self) -> list[str]:
        """The metrics of --best-by, of which the first one selects."""
        return self.best_by.split(",")

    def intervals(self) -> tuple[Interval, Interval | None]:
        """Return the intervals of --save-every and of --validate-every, which begin now."""
        saving = Interval(self.save_every, "--save-every")
        if self.validate_every is None:
            return saving, None
        return saving, Interval(self.validate_every, "--validate-every")


class Interval:
    """An interval in steps (`1500`) or in minutes of wall time (`10m`).

    Raises:
        UsageError: `text`, the value of `flag`, is neither.
    """

    def __init__(self, text: str | int, flag: str) -> None:
        match = re.fullmatch(r"(\d{1,18})(m?)", str(text).strip())
        if not match or int(match[1]) == 0:
            raise UsageError(
                f"{flag} takes a number of steps such as 1500, or minutes such as 10m, not "
                f"{shown(text)}"
            )
        self.number = int(match[1])
        self.is_minutes = match[2] == "m"
        self.start = time.monotonic()

    def ends_at(self, step: int) -> bool:
        """Return whether an interval of steps ends at `step`."""
        return not self.is_minutes and step % self.number == 0

    def elapsed(self) -> bool:
        """Return whether an interval of minutes is over. If it is, the next one begins."""
        if not self.is_minutes or time.monotonic() - self.start < 60 * self.number:
            return False
        self.start = time.monotonic()
        return True
