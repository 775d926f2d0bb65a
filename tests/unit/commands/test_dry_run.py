"""The lines of `nmt train` before the first step, and dry runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import SIZES, long_run, words

from nmt_cli.distributed import World
from nmt_cli.training.messages import opening_lines

Nmt = Callable[..., tuple[int, str, str]]
TINY = SIZES | {"batch_tokens": 500, "max_epochs": 3}
WORLD = World(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def run(tiny_data: Path) -> Any:
    """Of a tiny model."""
    return long_run(tiny_data)


def test_size_steps_and_epochs(run: Any) -> None:
    lines = opening_lines(run).split("\n")
    count = sum(parameter.numel() for parameter in run.model.parameters())
    steps = 3 * len(list(run.plan.epoch(0)))
    assert len(lines) == 2
    numbers = [int(number.replace(",", "")) for number in re.findall(r"\d+(?:,\d+)*", lines[0])]
    assert numbers == [count, 900, steps, 3]


def test_what_cannot_be_divided(nmt: Nmt, tiny_data: Path, tmp_path: Path) -> None:
    words_of_run = (
        "train",
        tiny_data,
        "--out",
        tmp_path / "run",
        *words(TINY),
        "--device=cpu",
        "--model-parallel",
    )
    for arguments, message in (
        ((*words_of_run, "--model=moe_transformer", "--best-by=bleu"), "there can be no search"),
        ((*words_of_run, "--dry-run"), "no parameters to divide"),
        ((*words_of_run, "--processes=2"), "--processes is for --dry-run"),
    ):
        code, _, err = nmt(*arguments)
        assert code == 2
        assert message in err


def test_the_highest_learning_rate_stands_in_the_first_lines(run: Any) -> None:
    assert opening_lines(run).endswith("; highest learning rate: 0.25")
