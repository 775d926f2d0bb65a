"""A learning rate that ends at zero, for a training whose length is known."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.errors import UsageError
from nmt_cli.optim.inverse_sqrt import InverseSqrtConfig
from nmt_cli.registry import option, register


@dataclass(frozen=True)
class LinearDecayConfig(InverseSqrtConfig):
    """The settings of `LinearDecay`."""

    decay_steps: int = option(
        100_000, "Step at which the learning rate reaches zero, usually --max-steps.", minimum=1
    )


@register("schedule", "linear_decay", LinearDecayConfig)
class LinearDecay:
    """Linear warm-up to the peak of equation 3 (section 5.3), then a straight line to zero.

    It would be zero one step after `decay_steps`. Later steps keep the rate of that step.

    Raises:
        UsageError: the decay would end before the warm-up.
    """

    def __init__(self, config: LinearDecayConfig, *, d_model: int) -> None:
        if config.decay_steps <= config.warmup_steps:
            raise UsageError(
                f"--decay-steps {config.decay_steps} is not above --warmup-steps "
                f"{config.warmup_steps}; it is usually the value of --max-steps"
            )
        self.peak = config.peak(d_model)
        self.warmup_steps = config.warmup_steps
        self.decay_steps = config.decay_steps

    def __call__(self, step: int) -> float:
        remaining = max(self.decay_steps - step, 0) + 1
        rising = step / self.warmup_steps
        falling = remaining / (self.decay_steps - self.warmup_steps + 1)
        return self.peak * min(rising, falling)
