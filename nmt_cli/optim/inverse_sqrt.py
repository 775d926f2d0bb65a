"""The learning rate of equation 3 (section 5.3)."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.errors import UsageError
from nmt_cli.registry import option, register


@dataclass(frozen=True)
class InverseSqrtConfig:
    warmup_steps: int = option(4000, "Steps of linear warm-up.", minimum=1)
    learning_rate_scale: float = option(
        1.0,
        "Factor of the learning rate: the peak x sqrt(d_model x warmup steps), 1 in the paper.",
        minimum=0.0,
        instead_of="peak_learning_rate",
    )
    peak_learning_rate: float | None = option(
        None,
        "Highest learning rate, at the end of the warm-up, instead of --learning-rate-scale.",
        minimum=0.0,
        instead_of="learning_rate_scale",
    )

    def __post_init__(self) -> None:
        if self.peak_learning_rate is not None and self.learning_rate_scale != 1:
            raise UsageError(
                "--peak-learning-rate and --learning-rate-scale say the same; give one of them"
            )

    def peak(self, d_model: int) -> float:
        """Return the highest learning rate for a model of this width."""
        if self.peak_learning_rate is not None:
            return self.peak_learning_rate
        return self.learning_rate_scale * (d_model * self.warmup_steps) ** -0.5


@register("schedule", "inverse_sqrt", InverseSqrtConfig)
class InverseSqrt:
    """Equation 3: lrate = d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)."""

    def __init__(self, config: InverseSqrtConfig, *, d_model: int) -> None:
        self.scale: float = config.learning_rate_scale * d_model**-0.5
        if config.peak_learning_rate is not None:  # the rate at the end of the warm-up
            self.scale = config.peak_learning_rate * config.warmup_steps**0.5
        self.warmup_steps = config.warmup_steps

    def __call__(self, step: int) -> float:
        return self.scale * min(step**-0.5, step * self.warmup_steps**-1.5)
