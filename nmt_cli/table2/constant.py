"""A constant learning rate."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.registry import option, register


@dataclass(frozen=True)
class ConstantConfig:
    learning_rate: float = option(0.001, "The constant rate.", minimum=0.0)
    warmup_steps: int = option(1, "Steps of linear warm-up.", minimum=1)


@register("schedule", "constant", ConstantConfig)
class Constant:
    """`learning_rate`, after a linear warm-up; by default the first step has it already."""

    def __init__(self, config: ConstantConfig, *, d_model: int) -> None:
        self.peak = config.learning_rate
        self.warmup_steps = config.warmup_steps

    def __call__(self, step: int) -> float:
        return self.peak * min(step / self.warmup_steps, 1.0)
