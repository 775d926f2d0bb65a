"""The cosine schedule, beside PyTorch's own."""

from __future__ import annotations

import pytest
import torch

from nmt_cli.annexes.later.cosine import Cosine
from nmt_cli.annexes.later.settings import CosineConfig
from nmt_cli.errors import UsageError


def cosine(warmup: int, end: int, lowest: float = 0.1) -> Cosine:
    config = CosineConfig(
        warmup_steps=warmup, learning_rate_scale=2.0, decay_steps=end, lowest_rate=lowest
    )
    return Cosine(config, d_model=64)


def test_the_rates_are_those_of_torch() -> None:
    schedule = cosine(warmup=5, end=20, lowest=0.25)
    assert schedule.peak == 2 * (64 * 5) ** -0.5
    assert [schedule(step) for step in range(1, 6)] == pytest.approx(
        [schedule.peak * step / 5 for step in range(1, 6)]
    )
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=schedule.peak)
    torch_schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=15, eta_min=schedule.peak / 4
    )
    for step in range(5, 21):
        assert schedule(step) == pytest.approx(torch_schedule.get_last_lr()[0])
        optimizer.step()
        torch_schedule.step()
    assert schedule(20) == schedule(10**6) == pytest.approx(schedule.peak / 4)


def test_a_decay_inside_the_warmup_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--decay-steps 10 .*--warmup-steps 10"):
        cosine(10, 10)
