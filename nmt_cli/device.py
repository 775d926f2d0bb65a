"""The machine: this process's rank, its device and precision, and sums over all ranks."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from nmt_cli.errors import Interrupted, NmtError, TrainingError, UsageError
from nmt_cli.lookout import Failure, Lookout, told

DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("auto", "float32", "bfloat16")
_LAST_EXIT = 30  # seconds


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """The device called `auto`, `cpu`, `cuda` or `cuda:N`; auto is the rank's GPU where there is one.

    Raises:
        UsageError: the name is none of these, or there is no such GPU.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if name != "cuda" and not (name.startswith("cuda:") and name[5:].isdigit()):
        raise UsageError(f"--device must be auto, cpu, cuda or cuda:N, not {name!r}")
    index = int(name[5:]) if ":" in name else local_rank
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        raise UsageError(
            f"--device {name}: this process sees {torch.cuda.device_count()} GPUs; use --device cpu, or fewer processes"
        )
    return torch.device("cuda", index)


def product_type(device_type: str, precision: str) -> torch.dtype:
    """The type of matrix products as `precision` says; `auto` is bfloat16 on GPUs and float32 on CPUs."""
    low = precision == "bfloat16" or (precision == "auto" and device_type == "cuda")
    return torch.bfloat16 if low else torch.float32


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Matrix products of the `product_type`."""
    low = product_type(device.type, precision) == torch.bfloat16
    return torch.autocast(device.type, torch.bfloat16, enabled=low)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether PyTorch raised `error` because the device, or this machine, has not the memory."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


class LostProcess(TrainingError):
    """Another process of the run failed, died or hangs."""

    def __init__(self, failure: Failure, rank: int) -> None:
        super().__init__(told(failure, rank))
        self.exit_code = failure.exit_code


@dataclass(frozen=True)
class World:
    """All processes of a run, seen from one of them."""

    rank: int
    size: int
    device: torch.device
    lookout: Lookout | None = None  # in a world of several

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Adds `tensor` over all ranks, in place.

        Raises:
            LostProcess: a rank died, hung or failed; the message names it.
        """
        if self.lookout is not None:
            with self._watched(self.lookout):
                dist.all_reduce(tensor)
                if tensor.is_cuda:
                    torch.cuda.synchronize(tensor.device)  # so that the wait is here, where it is watched
        return tensor

    def barrier(self) -> None:
        """Waits for all ranks."""
        self.sum(torch.zeros(1, device=self.device))

    def found(self, store: Any, timeout_minutes: float) -> None:
        """Makes the group of all processes that have met at `store`."""
        if self.lookout is not None:
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            patience = datetime.timedelta(minutes=2 * timeout_minutes + 1)  # the watch comes first: it can name names
            with self._watched(self.lookout):
                dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.size, timeout=patience)

    @contextlib.contextmanager
    def _watched(self, lookout: Lookout) -> Iterator[None]:
        try:
            with lookout.waiting():
                yield
        except RuntimeError as error:
            raise LostProcess(lookout.explain(error), self.rank) from error


@contextlib.contextmanager
def join_world(device_name: str, timeout_minutes: float) -> Iterator[World]:
    """This process's place among those that torchrun started, or a world of one.

    An error in one process ends all of them, with its exit code, and one of them alone raises it.

    Args:
        timeout_minutes: after how long without an answer a rank is given up, and the run ends with an error.
    """
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if size == 1:
        yield World(rank, size, _own_device(device_name))
        return
    store = _meet(timeout_minutes)
    # torchrun keeps one store over all its restarts: what the processes before wrote must not be taken for ours.
    attempt = f"nmt/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
    # A connection of its own: that of the sums may be waiting for something.
    lookout = Lookout(PrefixStore(f"{attempt}/lookout", store.clone()), rank, size, 60 * timeout_minutes)
    try:
        world = World(rank, size, _own_device(device_name), lookout)
        world.found(PrefixStore(f"{attempt}/group", store), timeout_minutes)
        yield world
        lookout.stop()
        dist.destroy_process_group()
    except BaseException as error:
        lookout.stop()
        signal.alarm(_LAST_EXIT)  # whatever the libraries of a broken group still wait for
        raised = _parting(lookout, rank, error)
        lookout.linger()
        if raised is error:
            raise
        raise raised from error


def alike_everywhere() -> AbstractContextManager[None]:
    """Around what fails in every process or in none: the main one alone says so."""
    return _quiet_failures() if int(os.environ.get("RANK", 0)) else contextlib.nullcontext()


@contextlib.contextmanager
def _quiet_failures() -> Iterator[None]:
    try:
        yield
    except NmtError as error:
        raise SystemExit(error.exit_code) from error


def _own_device(name: str) -> torch.device:
    device = choose_device(name, int(os.environ.get("LOCAL_RANK", 0)))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def _meet(timeout_minutes: float) -> Any:
    """A store that all processes share; torchrun keeps it alive, else the main process does."""
    try:
        store, _, _ = next(iter(rendezvous("env://", timeout=datetime.timedelta(minutes=timeout_minutes))))
    except (RuntimeError, ValueError) as error:
        raise TrainingError(f"the processes of this run did not all find each other: {error}") from error
    return store


def _parting(lookout: Lookout, rank: int, error: BaseException) -> BaseException:
    """What this process raises after `error`: the user hears of it once, and every process has its exit code."""
    if isinstance(error, (Interrupted, KeyboardInterrupt)):  # these come to all
        code = error.exit_code if isinstance(error, Interrupted) else 128 + signal.SIGINT
        return error if rank == 0 else SystemExit(code)
    if isinstance(error, SystemExit):
        return error
    code = error.exit_code if isinstance(error, NmtError) else 1
    if not isinstance(error, LostProcess):
        lookout.declare(Failure(rank, code, str(error) or type(error).__name__))
    speaks = lookout.may_speak()
    if not isinstance(error, (NmtError, OSError)):
        return error  # a mistake of ours, which needs its traceback
    if not speaks:
        return SystemExit(code)
    if rank == 0 or isinstance(error, LostProcess):
        return error
    named = TrainingError(f"rank {rank}: {error}")
    named.exit_code = code
    return named
