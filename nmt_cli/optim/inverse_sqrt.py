"""The learning rate of equation 3 (section 5.3)."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.registry import option, register


@dataclass(frozen=True)
class InverseSqrtConfig:
    warmup_steps: int = option(4000, "Steps of linear warm-up.", minimum=1)
    learning_rate_scale: float = option(
        1.0, "Factor of the learning rate: the peak x sqrt(d_model x warmup steps), 1 in the paper.", minimum=0.0
    )


@register("schedule", "inverse_sqrt", InverseSqrtConfig)
class InverseSqrt:
    """Equation 3: lrate = d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)."""

    def __init__(self, config: InverseSqrtConfig, *, d_model: int) -> None:
        self.scale: float = config.learning_rate_scale * d_model**-0.5
        self.warmup_steps = config.warmup_steps

    def __call__(self, step: int) -> float:
        return self.scale * min(step**-0.5, step * self.warmup_steps**-1.5)
