"""The constant schedule, beside PyTorch's own warm-up."""

from __future__ import annotations

import pytest
import torch

from nmt_cli.annexes.table2.constant import Constant
from nmt_cli.annexes.table2.settings import ConstantConfig


@pytest.mark.parametrize("warmup", [1, 5])
def test_the_rates_are_those_of_torch(warmup: int) -> None:
    schedule = Constant(ConstantConfig(learning_rate=0.3, warmup_steps=warmup), d_model=64)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=schedule.peak)
    torch_schedule = torch.optim.lr_scheduler.LinearLR(
        optimizer, start_factor=1 / warmup, total_iters=warmup - 1
    )
    for step in range(1, 12):
        assert schedule(step) == pytest.approx(torch_schedule.get_last_lr()[0])
        optimizer.step()
        torch_schedule.step()
    assert schedule(warmup) == schedule(10**6) == schedule.peak == 0.3
