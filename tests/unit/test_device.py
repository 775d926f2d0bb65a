"""Devices by name, precision, and sums over processes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from nmt_cli.device import LostProcess, World, autocast, choose_device, join_world
from nmt_cli.errors import UsageError
from nmt_cli.lookout import Failure, Lookout

CPU = torch.device("cpu")


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("name", "count", "local_rank", "expected"),
    [
        ("auto", 0, 0, "cpu"),
        ("auto", 2, 0, "cuda:0"),
        ("auto", 2, 1, "cuda:1"),
        ("cpu", 2, 1, "cpu"),
        ("cuda", 2, 1, "cuda:1"),
        ("cuda:1", 2, 0, "cuda:1"),
    ],
)
def test_devices(monkeypatch: pytest.MonkeyPatch, name: str, count: int, local_rank: int, expected: str) -> None:
    gpus(monkeypatch, count)
    assert choose_device(name, local_rank) == torch.device(expected)


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "CPU", ""])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UsageError, match=r"--device must be auto, cpu, cuda or cuda:N"):
        choose_device(name)


@pytest.mark.parametrize(
    ("name", "count", "local_rank"), [("cuda", 0, 0), ("cuda:2", 2, 0), ("cuda", 2, 2), ("auto", 1, 1)]
)
def test_gpus_that_are_not_there(monkeypatch: pytest.MonkeyPatch, name: str, count: int, local_rank: int) -> None:
    gpus(monkeypatch, count)
    with pytest.raises(UsageError, match=rf"this process sees {count} GPUs; use --device cpu"):
        choose_device(name, local_rank)


@pytest.mark.parametrize(("precision", "low"), [("auto", False), ("float32", False), ("bfloat16", True)])
def test_precision_of_products_on_a_cpu(precision: str, low: bool) -> None:
    x = torch.ones(2, 2)
    with autocast(CPU, precision):
        assert (x @ x).dtype == (torch.bfloat16 if low else torch.float32)


def test_a_world_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with join_world("cpu", timeout_minutes=1) as world:
        assert (world.rank, world.size, world.is_main) == (0, 1, True)
        tensor = torch.tensor([1.5])
        assert world.sum(tensor) is tensor
        assert tensor.item() == 1.5
        world.barrier()
    assert not dist.is_initialized()


def test_only_the_first_process_speaks() -> None:
    assert [World(rank, 4, CPU).is_main for rank in range(4)] == [True, False, False, False]


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Failure | None], World]:
    """A process of several, whose others are not there."""

    def world(rank: int, failure: Failure | None) -> World:
        store = dist.HashStore()
        lookout = Lookout(store, rank, 4, patience=60)
        if failure is not None:
            Lookout(store, failure.rank, 4, patience=60).declare(failure)
        return World(rank, 4, CPU, lookout)

    def lost(tensor: Any) -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(dist, "all_reduce", lost)
    return world


def test_a_process_that_failed_is_named(others: Callable[[int, Failure | None], World]) -> None:
    with pytest.raises(LostProcess, match=r"^rank 3 failed: no room\n") as caught:
        others(2, Failure(3, 2, "no room")).sum(torch.zeros(1))
    assert caught.value.exit_code == 2


def test_processes_that_fell_silent_are_named(
    others: Callable[[int, Failure | None], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt_cli.lookout.SILENCE", 1.0)
    with pytest.raises(LostProcess, match=r"^rank 0 never came to the others; rank 1 never came .*; rank 3 never"):
        others(2, None).sum(torch.zeros(1))


def test_a_world_of_one_has_nothing_to_sum() -> None:
    assert World(0, 1, CPU).sum(torch.ones(1)).item() == 1.0


class Cloned(dist.HashStore):
    """A store for one process, which knows no connections."""

    def clone(self) -> dist.HashStore:
        return dist.HashStore()


def test_an_error_ends_the_world_without_waiting_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Any]] = []
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("nmt_cli.lookout.MAIN_SPEAKS_WITHIN", 0.0)
    monkeypatch.setattr("nmt_cli.device._meet", lambda minutes: Cloned())
    monkeypatch.setattr(signal, "alarm", lambda seconds: calls.append(("alarm", seconds)))
    monkeypatch.setattr(dist, "init_process_group", lambda backend, timeout, **_: calls.append((backend, timeout)))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: calls.append(("left", None)))

    def work() -> None:
        with join_world("cpu", timeout_minutes=0.5) as world:
            assert (world.rank, world.size) == (0, 2)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        work()
    assert [name for name, _ in calls] == ["gloo", "alarm"]  # a broken group is not waited for
    assert calls[0][1].total_seconds() > 2 * 30  # so that the watch comes first
