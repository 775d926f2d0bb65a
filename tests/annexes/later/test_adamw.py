"""AdamW beside PyTorch's own, and its rule for what decays."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from tiny_run import run
from torch import nn

from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.annexes.later.adamw import adamw
from nmt_cli.annexes.later.settings import AdamWConfig


def test_the_updates_are_those_of_torch() -> None:
    """With the same groups.

    What decays is found by a gradient of zero: matrices shrink, vectors stay.
    """
    torch.manual_seed(1)
    our_model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3), nn.LayerNorm(3))
    their_model = copy.deepcopy(our_model)
    optimizer = adamw(
        AdamWConfig(beta2=0.95, epsilon=1e-6, weight_decay=0.3), parameters=our_model.parameters()
    )
    matrices = [their_model[0].weight, their_model[1].weight]
    vectors = [their_model[1].bias, their_model[2].weight, their_model[2].bias]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    expected = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.3)
    for step in range(5):
        for model, stepped in ((our_model, optimizer), (their_model, expected)):
            model(torch.arange(7)).square().sum().backward()
            for group in stepped.param_groups:
                group["lr"] = 0.01 * step
            stepped.step()
            stepped.zero_grad()
    for mine, other in zip(our_model.parameters(), their_model.parameters(), strict=True):
        torch.testing.assert_close(mine, other)


def test_vectors_alone_can_be_trained() -> None:
    """Then no matrix is left for the other group."""
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.zeros(3)
    optimizer = adamw(AdamWConfig(weight_decay=0.5), parameters=[weight])
    for group in optimizer.param_groups:
        group["lr"] = 1.0
    optimizer.step()
    assert torch.equal(weight.detach(), torch.ones(3))


def test_a_run_resumes_bit_for_bit(tiny_data: Path, tmp_path: Path) -> None:
    """The two groups number the parameters in another order than the model."""
    settings = {"optimizer": "adamw", "schedule": "cosine", "decay_steps": 30, "weight_decay": 0.5}
    run(tiny_data, tmp_path / "whole", **settings)
    run(tiny_data, tmp_path / "parts", **settings, max_steps=4)
    run(tiny_data, tmp_path / "parts", **settings)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
