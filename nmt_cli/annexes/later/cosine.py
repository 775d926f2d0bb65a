"""A learning rate that falls along half a cosine, without restarts.

Loshchilov and Hutter 2017, equation 5.
"""

from __future__ import annotations

import math

from nmt_cli.annexes.later.linear_decay import LinearDecay
from nmt_cli.annexes.later.settings import CosineConfig


class Cosine(LinearDecay):
    """Warm-up as in equation 3, then half a cosine from its peak to `lowest_rate` of the peak."""

    def __init__(self, config: CosineConfig, *, d_model: int) -> None:
        super().__init__(config, d_model=d_model)
        self.lowest_rate = config.lowest_rate

    def __call__(self, step: int) -> float:
        decay_steps = self.decay_steps - self.warmup_steps
        done = (min(step, self.decay_steps) - self.warmup_steps) / decay_steps
        cosine = 1 + math.cos(math.pi * max(done, 0.0))  # from 2 to 0
        share = self.lowest_rate + (1 - self.lowest_rate) * cosine / 2
        return self.peak * min(step / self.warmup_steps, share)
