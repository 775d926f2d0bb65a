"""The ranks of a distributed run: a process each, started by torchrun. They may divide parameters
among them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
from torch.distributed.rendezvous import rendezvous

from nmt_cli.device import choose_device
from nmt_cli.errors import (
    Interrupted,
    NmtError,
    TrainingError,
    UsageError,
    environment_number,
    rank_and_size,
)

# Texts in errors of gloo, which have no type of their own.
_GLOO = ("/gloo/", "pair closure", "Timed out", "Connection")

LOST = (
    "another rank failed, or did not respond in time. Run the same command again: it goes on from "
    "what was saved."
)
CANNOT_START = "the processes cannot reach each other."


@dataclass(frozen=True)
class World:
    """The ranks of a run, as one of them sees them."""

    rank: int
    size: int
    device: torch.device
    timeout: timedelta | None = None
    # On GPUs, for barriers and flags. None is the default group.
    gloo: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        """Whether this rank writes the files and the messages."""
        return self.rank == 0

    @property
    def is_first_of_machine(self) -> bool:
        return environment_number("LOCAL_RANK", 0) == 0

    def start_sum(self, tensor: Tensor) -> Callable[[], list[float]]:
        """Start to add `tensor` [n] over all ranks, in place.

        On a GPU, what follows sees the sum, and the host does not wait for it. The returned
        function waits, and returns the numbers.

        Raises:
            TrainingError: a rank failed, or did not respond in time. So do the methods below.
        """
        work = _start_reduce(tensor, dist.ReduceOp.SUM)
        if work is not None:
            with explain_lost_ranks():
                work.get_future().wait()  # on a GPU, its stream waits
        # NCCL does not notice a rank that is lost before it takes part, but gloo does. So the host
        # asks gloo before it waits.
        wait_for_ranks = self.start_any([True]) if self.gloo is not None else None
        numbers = tensor.to("cpu", non_blocking=True)  # from a GPU into pinned memory
        copied = torch.cuda.Event() if tensor.is_cuda else None  # type: ignore[no-untyped-call]
        if copied is not None:
            copied.record()

        def read() -> list[float]:
            _wait(work)
            if wait_for_ranks is not None:
                wait_for_ranks()
            if copied is not None:
                copied.synchronize()
            return list(numbers.tolist())

        return read

    def start_any(self, flags: Sequence[bool]) -> Callable[[], list[bool]]:
        """Start a logical OR of each flag over the ranks, beside the GPU.

        The returned function waits, and returns the flags.
        """
        counts = torch.tensor(flags, dtype=torch.uint8, device="cpu")
        work = _start_reduce(counts, dist.ReduceOp.MAX, self.gloo)

        def read() -> list[bool]:
            _wait(work)
            return [count > 0 for count in counts.tolist()]

        return read

    def barrier(self) -> None:
        """Wait for all ranks. Rank 0 names the ranks that are missing."""
        if dist.is_initialized():
            with explain_lost_ranks():
                dist.monitored_barrier(self.gloo, self.timeout, wait_all_ranks=True)

    def aside(self) -> World:
        """Return this world with connections of its own, for a thread beside the others.

        All ranks must call it.
        """
        if not dist.is_initialized():
            return self
        with explain_lost_ranks():
            return replace(self, gloo=dist.new_group(backend="gloo", timeout=self.timeout))

    def gather(self, value: Any) -> list[Any]:
        """Wait for the objects of all ranks, and return them on all, by rank."""
        values = [value] * self.size
        with explain_lost_ranks():
            if dist.is_initialized():
                dist.all_gather_object(values, value, self.gloo)
        return values


def divide(model: torch.nn.Module, world: World) -> None:
    """Keep this rank's part of the parameters that modules name in their attribute `divided`.

    A part is an equal share of the first dimension. In checkpoints the parameters are whole. All
    ranks must make equally many passes.

    Raises:
        UsageError: there are no such parameters, or they cannot be divided equally.
    """
    places = [
        (module, name) for module in model.modules() for name in getattr(module, "divided", ())
    ]
    sizes = [len(getattr(module, name)) for module, name in places]
    if not sizes or any(size % world.size for size in sizes):
        raise UsageError(
            f"--model-parallel: this model has no parameters to divide into {world.size} equal "
            "parts"
        )
    for module, name in places:
        parameter = getattr(module, name)
        part = parameter.detach().chunk(world.size)[world.rank].clone()
        part = torch.nn.Parameter(part, parameter.requires_grad)
        vars(part)["ranks"] = world.size  # for `ranks_of`
        setattr(module, name, part)


def ranks_of(parameter: Tensor) -> int:
    """Return the number of ranks that share the parameter, or 1 if each has all of it."""
    ranks: int = vars(parameter).get("ranks", 1)
    return ranks


def own_part(whole: Tensor, parameter: Tensor) -> Tensor:
    """Return this rank's part of a tensor that is divided as `parameter` is.

    A tensor of another size, such as a count of steps, is not divided.
    """
    ranks = ranks_of(parameter)
    if ranks == 1 or whole.numel() != ranks * parameter.numel():
        return whole
    return whole.chunk(ranks)[dist.get_rank()]


def whole(part: Tensor, parameter: Tensor) -> Tensor:
    """Return the whole of a tensor, the reverse of `own_part`: on rank 0, in the host's memory.

    All ranks must call it. The others get their part back.
    """
    ranks = ranks_of(parameter)
    if ranks == 1 or part.shape != parameter.shape:
        return part
    parts = None
    if dist.get_rank() == 0:
        parts = [torch.empty_like(part) for _ in range(ranks)]
    with explain_lost_ranks():
        dist.gather(part, parts)
    if parts is None:
        return part
    return torch.cat([part.cpu() for part in parts])


def _start_reduce(
    tensor: Tensor, operation: Any, group: dist.ProcessGroup | None = None
) -> dist.Work | None:
    if not dist.is_initialized():
        return None
    with explain_lost_ranks():
        work: dist.Work = dist.all_reduce(tensor, operation, group, async_op=True)
    return work


def _wait(work: dist.Work | None) -> None:
    with explain_lost_ranks():
        if work is not None:
            work.wait()


@contextlib.contextmanager
def join_world(device_name: str, timeout_minutes: float, on_gpus: bool = True) -> Iterator[World]:
    """Join the ranks that torchrun started, or make a world of one.

    When a rank fails, the others fail too: their connections break, or time out after
    `timeout_minutes`. The first rank to fail raises its error, the others exit without a message.
    Without `on_gpus`, GPUs exchange nothing.
    """
    rank, size = rank_and_size()
    if size == 1:
        yield World(rank, size, own_device(device_name))
        return
    timeout = timedelta(minutes=timeout_minutes)
    with explain_lost_ranks(CANNOT_START):
        store, _, _ = next(iter(rendezvous("env://", timeout=timeout)))
    # torchrun keeps one store for all restarts, and the keys of an earlier start would be found.
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)
        store = PrefixStore(f"nmt/{restarts}", store)
    try:
        if ":" in device_name and environment_number("LOCAL_WORLD_SIZE", 1) > 1:
            raise UsageError(
                f"--device {device_name}: each process needs a GPU of its own; give --device cuda"
            )
        device = own_device(device_name)
        backend = "nccl" if device.type == "cuda" and on_gpus else "gloo"
        gloo = None
        with explain_lost_ranks(CANNOT_START):
            # NCCL ends a process that has waited too long, without a message. gloo, which finds a
            # lost rank, must be sooner.
            patience = timeout if backend == "gloo" else 2 * timeout
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=size, timeout=patience
            )
            if backend == "nccl":
                gloo = dist.new_group(backend="gloo", timeout=timeout)
        world = World(rank, size, device, timeout, gloo)
        world.barrier()
        yield world
        dist.destroy_process_group()
    except BaseException as error:
        signal.alarm(30)  # a broken NCCL group can block the exit
        if isinstance(error, Exception):
            # torchrun stops the ranks that are left, and cannot read half a report.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            get_error_handler().record_exception(error)
        if not _reports(error, rank, store):
            raise SystemExit(getattr(error, "exit_code", 1)) from error
        if rank and isinstance(error, NmtError):
            error.args = (f"rank {rank}: {error}",)
        raise


@contextlib.contextmanager
def explain_lost_ranks(what: str = LOST, computing: bool = False) -> Iterator[None]:
    """Raise a TrainingError, `what` and torch's message, where ranks communicate and one is lost.

    Where they are `computing` too, other errors pass.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:
        is_lost = isinstance(error, dist.DistError) or any(text in str(error) for text in _GLOO)
        if computing and not is_lost:
            raise
        lines = [line.strip() for line in str(error).splitlines()]
        if isinstance(error, dist.DistBackendError):  # NCCL's cause follows its first line
            cause = " ".join(lines)
        else:  # a trace of calls follows the first line
            cause = lines[0].split(". ")[0]
        raise TrainingError(f"{what} (torch: {cause})") from error


def own_device(name: str) -> torch.device:
    """Return the device, which becomes the current one of CUDA."""
    device = choose_device(name)
    if device.type == "cuda":  # graphs are captured on a stream of the current device
        torch.cuda.set_device(device)
    return device


def _reports(error: BaseException, rank: int, store: Any) -> bool:
    """Return whether this rank reports `error`: the first to fail, or rank 0 after a signal."""
    if isinstance(error, (Interrupted, KeyboardInterrupt)):
        return rank == 0
    try:
        # Atomic: only the first rank finds the key empty.
        return bool(store.compare_set("failed", "", str(rank)) == str(rank).encode())
    except RuntimeError:  # the rank that hosts the store has ended
        return True
