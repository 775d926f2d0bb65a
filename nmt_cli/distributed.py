"""The ranks of a distributed run: a process each, started by torchrun. They may divide parameters
among them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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

# In its errors, which have no type of their own.
_GLOO = ("/gloo/", "pair closure", "Timed out", "Connection")

LOST = "another rank failed, or did not respond in time. Run the same command again: it goes on from what was saved."
CANNOT_START = "the processes cannot reach each other."


@dataclass(frozen=True)
class World:
    """The ranks of a run, as one of them sees them."""

    rank: int
    size: int
    device: torch.device
    timeout: timedelta | None = None
    # On GPUs, for barriers and flags; None is the default group.
    gloo: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        """Whether this rank writes the files and the messages."""
        return self.rank == 0

    @property
    def is_first_of_machine(self) -> bool:
        return environment_number("LOCAL_RANK", 0) == 0

    def start_sum(self, tensor: Tensor) -> Callable[[], list[float]]:
        """Start to add `tensor` [n] over all ranks, in place; the returned function waits, and
        returns the numbers.

        On a GPU, what follows sees the sum, and only the returned function waits for it. Here and
        below a TrainingError is raised if a rank failed, or did not respond in time.
        """
        work = _start_reduce(tensor, dist.ReduceOp.SUM)
        if work is not None:
            with explain_lost_ranks():
                work.get_future().wait()  # on a GPU, its stream waits
        # Not NCCL, but gloo finds a rank that is lost before it takes part. So the host asks gloo
        # before it waits.
        started = self.start_any([True]) if self.gloo is not None else None
        numbers = tensor.to("cpu", non_blocking=True)  # from a GPU into pinned memory
        done = torch.cuda.Event() if tensor.is_cuda else None  # type: ignore[no-untyped-call]
        if done is not None:
            done.record()

        def read() -> list[float]:
            _wait(work)
            if started is not None:
                started()
            if done is not None:
                done.synchronize()
            return list(numbers.tolist())

        return read

    def start_any(self, flags: Sequence[bool]) -> Callable[[], list[bool]]:
        """Start a logical OR of each flag over the ranks, beside the GPU; the returned function
        waits for it.
        """
        counts = torch.tensor(flags, dtype=torch.uint8, device="cpu")
        work = _start_reduce(counts, dist.ReduceOp.MAX, self.gloo)

        def answer() -> list[bool]:
            _wait(work)
            return [count > 0 for count in counts.tolist()]

        return answer

    def barrier(self) -> None:
        """Wait for all ranks. Rank 0 names the ranks that are missing."""
        if dist.is_initialized():
            with explain_lost_ranks():
                dist.monitored_barrier(self.gloo, self.timeout, wait_all_ranks=True)

    def gather(self, own: Any) -> list[Any]:
        """Wait for the objects of all ranks, and return them on all, by rank."""
        found = [own] * self.size
        with explain_lost_ranks():
            if dist.is_initialized():
                dist.all_gather_object(found, own, self.gloo)
        return found


def divide(model: torch.nn.Module, world: World) -> None:
    """Keep this rank's part of the parameters that modules of the model name in their attribute
    `divided`.

    It is an equal part of the first dimension; in checkpoints they are whole. All ranks must make
    equally many passes. A UsageError is raised if there are none, or if they cannot be divided
    equally.
    """
    found = [
        (module, name) for module in model.modules() for name in getattr(module, "divided", ())
    ]
    if not found or any(len(getattr(*each)) % world.size for each in found):
        raise UsageError(
            f"--model-parallel: this model has no parameters to divide into {world.size} equal "
            "parts"
        )
    for module, name in found:
        whole = getattr(module, name)
        own = torch.nn.Parameter(
            whole.detach().chunk(world.size)[world.rank].clone(), whole.requires_grad
        )
        vars(own)["ranks"] = world.size
        setattr(module, name, own)


def ranks_of(parameter: Tensor) -> int:
    """Return the number of ranks that have a part of the parameter each; 1 if each rank has all of
    it.
    """
    ranks: int = vars(parameter).get("ranks", 1)
    return ranks


def own_part(whole: Tensor, parameter: Tensor) -> Tensor:
    """Return of `whole` the part that this rank has of `parameter`; of a tensor that is not
    divided, all.
    """
    ranks = ranks_of(parameter)
    divided = ranks > 1 and whole.numel() == ranks * parameter.numel()
    return whole.chunk(ranks)[dist.get_rank()] if divided else whole


def whole(own: Tensor, parameter: Tensor) -> Tensor:
    """Return on rank 0, in the host's memory, the whole of what all ranks call this with; see
    `own_part`.
    """
    ranks = ranks_of(parameter)
    if ranks == 1 or own.shape != parameter.shape:
        return own
    parts = [torch.empty_like(own) for _ in range(ranks)] if dist.get_rank() == 0 else None
    with explain_lost_ranks():
        dist.gather(own, parts)
    return torch.cat([part.cpu() for part in parts]) if parts else own


def _start_reduce(
    tensor: Tensor, operation: Any, group: dist.ProcessGroup | None = None
) -> dist.Work | None:
    with explain_lost_ranks():
        return (
            dist.all_reduce(tensor, operation, group, async_op=True)
            if dist.is_initialized()
            else None
        )


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
    if (
        os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    ):  # torchrun keeps one store for all restarts
        store = PrefixStore(f"nmt/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    try:
        if ":" in device_name and environment_number("LOCAL_WORLD_SIZE", 1) > 1:
            raise UsageError(
                f"--device {device_name}: each process needs a GPU of its own; give --device cuda"
            )
        device = own_device(device_name)
        backend = "nccl" if device.type == "cuda" and on_gpus else "gloo"
        # NCCL ends a process that has waited too long, without a message: gloo, which finds a lost
        # rank, is sooner.
        patience = timeout if backend == "gloo" else 2 * timeout
        with explain_lost_ranks(CANNOT_START):
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=size, timeout=patience
            )
            gloo = None if backend == "gloo" else dist.new_group(backend="gloo", timeout=timeout)
        world = World(rank, size, device, timeout, gloo)
        world.barrier()
        yield world
        dist.destroy_process_group()
    except BaseException as error:
        signal.alarm(30)  # a broken NCCL group can block the exit
        if isinstance(error, Exception):
            get_error_handler().record_exception(error)  # for torchrun's report
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
        if (
            computing
            and not isinstance(error, dist.DistError)
            and not any(sign in str(error) for sign in _GLOO)
        ):
            raise
        lines = [line.strip() for line in str(error).splitlines()]
        # NCCL's cause follows its first line; other errors have a trace of calls there.
        cause = (
            " ".join(lines) if isinstance(error, dist.DistBackendError) else lines[0].split(". ")[0]
        )
        raise TrainingError(f"{what} (torch: {cause})") from error


def own_device(name: str) -> torch.device:
    """Return the device, which becomes the current one of CUDA: graphs are captured on a stream of
    it.
    """
    device = choose_device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def _reports(error: BaseException, rank: int, store: Any) -> bool:
    """Return whether this rank reports `error`: the first rank to fail does; after a signal, rank
    0.
    """
    if isinstance(error, (Interrupted, KeyboardInterrupt)):
        return rank == 0
    try:
        return bool(store.compare_set("failed", "", str(rank)) == str(rank).encode())
    except RuntimeError:  # the rank that hosts the store has ended
        return True
