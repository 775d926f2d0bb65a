"""The linear schedule, beside PyTorch's own."""

from __future__ import annotations

import pytest
import torch

from nmt_cli.annexes.later.linear_decay import LinearDecay, LinearDecayConfig
from nmt_cli.errors import UsageError


def linear_decay(warmup: int, end: int, scale: float = 1.0) -> LinearDecay:
    config = LinearDecayConfig(warmup_steps=warmup, learning_rate_scale=scale, decay_steps=end)
    return LinearDecay(config, d_model=64)


def test_the_rates_are_those_of_torch() -> None:
    schedule = linear_decay(warmup=5, end=20, scale=2.0)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=schedule.peak)
    torch_schedule = torch.optim.lr_scheduler.LinearLR(
        optimizer, start_factor=1.0, end_factor=1e-12, total_iters=16
    )
    for step in range(5, 21):
        assert schedule(step) == pytest.approx(torch_schedule.get_last_lr()[0], abs=1e-9)
        optimizer.step()
        torch_schedule.step()


def test_a_decay_inside_the_warmup_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--decay-steps 10 .*--warmup-steps 10"):
        linear_decay(10, 10)
