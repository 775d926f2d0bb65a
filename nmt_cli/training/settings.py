"""The settings of the training loop itself; every field is a flag of `nmt train`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nmt_cli.device import PRECISIONS
from nmt_cli.errors import UsageError
from nmt_cli.registry import option


@dataclass(frozen=True)
class TrainingConfig:
    """Section 5, and what a run needs around it."""

    batch_tokens: int = option(
        25_000, "source tokens, and target tokens, in one update over all devices (section 5.1)", minimum=1
    )
    micro_batches: int | None = option(
        None, "length-bucketed parts of an update [default: derived from --batch-tokens]", minimum=1
    )
    max_steps: int = option(100_000, "updates to train for", minimum=1)
    seed: int = option(1, "seed of weights, batches and dropout", minimum=0, maximum=2**63 - 1)
    precision: str = option(
        "auto", "of matrix products: auto is bfloat16 on GPUs with it, else float32", choices=PRECISIONS
    )
    clip_norm: float = option(0.0, "largest norm of the gradient, 0 for no clipping, as in the paper", minimum=0.0)
    save_every: str | int = option("1500", "steps between checkpoints, or minutes as in 10m")
    keep_last: int = option(20, "checkpoints to keep, besides the best", minimum=1)
    validate_every: str | int | None = option(
        None, "steps or minutes between validations [default: before each checkpoint]"
    )
    validation_bleu: bool = option(False, "translate the validation set greedily at each validation, and score it")
    patience: int | None = option(
        None, "stop after so many validations without a better loss [default: never]", minimum=1
    )
    log_every: int = option(100, "steps between reports", minimum=1)
    device: str = option("auto", "auto, cpu, cuda or cuda:N")
    deterministic: bool = option(False, "only kernels that give the same bits every time, also on GPUs")
    sustained_tflops: float | None = option(
        None,
        "sustained single-precision TFLOP/s of one device, for the cost as Table 2 counts it [default: as published, "
        "else measured]",
        minimum=1e-6,
    )
    peak_tflops: float | None = option(
        None, "peak TFLOP/s of one device, for the utilisation [default: as published, else measured]", minimum=1e-6
    )
    non_finite_budget: int = option(
        10, "updates with a loss or gradient that is not finite, before the run stops", minimum=0
    )
    timeout_minutes: float = option(10.0, "minutes to wait for an unresponsive rank", minimum=0.01, maximum=10080)

    def __post_init__(self) -> None:
        """Refuses intervals that are none before anything is written."""
        Interval.parse(self.save_every, "--save-every")
        if self.validate_every is not None:
            Interval.parse(self.validate_every, "--validate-every")


MAY_CHANGE = frozenset(
    "max_steps save_every keep_last validate_every validation_bleu patience log_every device deterministic "
    "sustained_tflops peak_tflops non_finite_budget timeout_minutes".split()
)
"""The settings that a resumed run may have otherwise: they do not touch what is learned in a step."""


@dataclass(frozen=True)
class Interval:
    """Every so many steps, or every so many seconds of wall time."""

    steps: int | None
    seconds: float | None

    @classmethod
    def parse(cls, text: str | int, name: str) -> Interval:
        """`1500` is steps, `10m` minutes.

        Raises:
            UsageError: it is neither.
        """
        match = re.fullmatch(r"(\d+)(m?)", str(text).strip())
        if not match or int(match[1]) == 0:
            raise UsageError(f"{name} takes a number of steps such as 1500, or minutes such as 10m, not {text!r}")
        number = int(match[1])
        return cls(None, 60.0 * number) if match[2] else cls(number, None)

    def due(self, step: int, seconds_since: float) -> bool:
        """Whether it is time at `step`, `seconds_since` after the last time."""
        if self.steps is not None:
            return step % self.steps == 0
        return self.seconds is not None and seconds_since >= self.seconds
