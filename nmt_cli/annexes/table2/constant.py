"""A constant learning rate."""

from __future__ import annotations

from nmt_cli.annexes.table2.settings import ConstantConfig


class Constant:
    """`learning_rate` after a linear warm-up, which by default is over at the first step."""

    def __init__(self, config: ConstantConfig, *, d_model: int) -> None:
        self.peak = config.learning_rate
        self.warmup_steps = config.warmup_steps

    def __call__(self, step: int) -> float:
        return self.peak * min(step / self.warmup_steps, 1.0)
