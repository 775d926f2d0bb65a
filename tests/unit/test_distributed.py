"""A world of one rank, and messages. tests/faults/test_processes.py has worlds of several."""

from __future__ import annotations

import re

import pytest
import torch
import torch.distributed as dist

from nmt_cli.distributed import CANNOT_START, LOST, explain_lost_ranks, join_world
from nmt_cli.errors import TrainingError


@pytest.mark.parametrize(
    ("error", "what", "message"),
    [
        (
            dist.DistBackendError("NCCL error\nLast error:\nDuplicate GPU"),
            CANNOT_START,
            "NCCL error Last error: Dup",
        ),
        (
            RuntimeError("Connection closed by peer. See\nframe 0"),
            LOST,
            "Connection closed by peer)",
        ),
    ],
)
def test_the_cause_is_shown(error: Exception, what: str, message: str) -> None:
    """NCCL's follows its first line. Other errors have a trace of calls there."""
    with (
        pytest.raises(TrainingError, match=re.escape(f"{what} (torch: {message}")),
        explain_lost_ranks(what),
    ):
        raise error


def test_a_world_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with join_world("cpu", timeout_minutes=1) as world:
        assert (world.rank, world.size, world.is_main) == (0, 1, True)
        assert world.start_sum(torch.tensor([1.5, 2.0]))() == [1.5, 2.0]
        assert world.start_any([True, False])() == [True, False]
        assert world.gather(("own", 1)) == [("own", 1)]
        world.barrier()
    assert not dist.is_initialized()
