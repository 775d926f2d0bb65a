"""Devices, precision, and the ranks of a distributed run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
from torch.distributed.rendezvous import rendezvous

from nmt_cli.cores import available_cores
from nmt_cli.errors import Interrupted, NmtError, TrainingError, UsageError, counted

Item = TypeVar("Item")
Result = TypeVar("Result")

_GLOO = ("/gloo/", "pair closure", "Timed out", "Connection")  # in its errors, which have no type of their own


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """Return the device called `auto`, `cpu`, `cuda` or `cuda:N`. `auto` is the rank's GPU if there is one.

    Raises:
        UsageError: the name is none of these, or there is no such GPU.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if name != "cuda" and not (name.startswith("cuda:") and name[5:].isdecimal()):
        raise UsageError(f"--device must be auto, cpu, cuda or cuda:N, not {name!r}")
    index = int(name[5:]) if ":" in name else local_rank
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        seen = f"this process sees {counted(count, 'GPU')}" if count else "no GPU is available"
        raise UsageError(f"--device {name}: {seen}; use --device cpu{', or fewer processes' if count else ''}")
    # cuDNN's attention makes a plan for each new shape, which takes longer than an update, and its backward pass in
    # bfloat16 has given NaN.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device("cuda", index)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Return a context in which matrix products are `precision`, float32 or bfloat16."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def product_dtype(tensor: Tensor) -> torch.dtype:
    """Return the type of a matrix product with `tensor`, which autocast may have lowered."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


def bound_product_cache() -> None:
    """Let oneDNN keep the code of few shapes of products: each step of a search may have a new one, of up to 1,024.

    It has an effect before the first product of the process.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "64")


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next tensor, where it is glibc: new pages cost time."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(-3, 1 << 30) or library.mallopt(-3, 1 << 25)  # M_MMAP_THRESHOLD; glibc < 2.35 refuses the first
        library.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD


def prepare_cpu() -> None:
    """Make training on a CPU fast: freed memory is kept, and float32 products are oneDNN's, which beats MKL's.

    PyTorch uses oneDNN for them only where bfloat16 is allowed instead. Of the x86 CPUs, only those with AMX use that.
    It starts a thread for each core that the process may run on, but more than a container's quota wait for each other.
    """
    if "OMP_NUM_THREADS" not in os.environ and available_cores() < torch.get_num_threads():
        torch.set_num_threads(available_cores())
    keep_freed_memory()
    bound_product_cache()
    if platform.machine() in ("x86_64", "AMD64") and not torch.cpu._is_amx_tile_supported():
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the machine is out of memory."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


def in_halves(
    work: Callable[[Sequence[Item]], list[Result]], items: Sequence[Item], explain: Callable[[Item], str]
) -> list[Result]:
    """Return `work(items)`, one result for each item; where it does not fit in memory, the results of halves.

    Raises:
        NmtError: one item does not fit; `explain(item)` is the message.
    """
    try:
        return work(items)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if len(items) == 1:
            raise NmtError(explain(items[0])) from error
    half = len(items) // 2
    return in_halves(work, items[:half], explain) + in_halves(work, items[half:], explain)


LOST = (
    "another rank failed, or did not respond within --timeout-minutes. Run the same command again to resume from the "
    "last checkpoint."
)
CANNOT_START = "the processes cannot reach each other."


@dataclass(frozen=True)
class World:
    """The ranks of a run, as one of them sees them."""

    rank: int
    size: int
    device: torch.device
    timeout: timedelta | None = None
    gloo: dist.ProcessGroup | None = None  # on GPUs, for barriers and flags; None is the default group

    @property
    def is_main(self) -> bool:
        """Whether this rank writes the files and the messages."""
        return self.rank == 0

    @property
    def is_first_of_machine(self) -> bool:
        """Whether this rank does what is done once on each machine."""
        return _local_rank() == 0

    def start_sum(self, tensor: Tensor) -> Callable[[], list[float]]:
        """Start to add `tensor` [n] over all ranks, in place; the returned function waits, and returns the numbers.

        On a GPU, what follows sees the sum, and only the returned function waits for it.

        Raises:
            TrainingError: a rank failed, or did not respond in time; from either.
        """
        work = done = None
        if dist.is_initialized():
            with explain_lost_ranks():
                work = dist.all_reduce(tensor, async_op=True)
                work.get_future().wait()  # on a GPU, its stream waits
        numbers = tensor.to("cpu", non_blocking=True)  # from a GPU into pinned memory
        if tensor.is_cuda:
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()

        def read() -> list[float]:
            if work is not None:
                with explain_lost_ranks():
                    work.wait()
            if done is not None:
                done.synchronize()
            return list(numbers.tolist())

        return read

    def from_main(self, *numbers: float) -> list[float]:
        """Wait for the numbers of the main rank, and return them on all ranks.

        Raises:
            TrainingError: as `start_sum`.
        """
        sent = numbers if self.is_main else [0.0] * len(numbers)
        return self.start_sum(torch.tensor(sent, dtype=torch.float64, device=self.device))()

    def start_any(self, flags: Sequence[bool]) -> Callable[[], list[bool]]:
        """Start to find out for each flag whether it is set on any rank; the returned function waits for the answer.

        Neither waits for the GPU.

        Raises:
            TrainingError: as `start_sum`.
        """
        counts = torch.tensor(flags, dtype=torch.uint8)
        work = None
        if dist.is_initialized():
            with explain_lost_ranks():
                work = dist.all_reduce(counts, dist.ReduceOp.MAX, group=self.gloo, async_op=True)

        def answer() -> list[bool]:
            if work is not None:
                with explain_lost_ranks():
                    work.wait()
            return [count > 0 for count in counts.tolist()]

        return answer

    def barrier(self) -> None:
        """Wait for all ranks. Rank 0 names the ranks that are missing."""
        if dist.is_initialized():
            with explain_lost_ranks():
                dist.monitored_barrier(self.gloo, self.timeout, wait_all_ranks=True)


@contextlib.contextmanager
def join_world(device_name: str, timeout_minutes: float) -> Iterator[World]:
    """Join the ranks that torchrun started, or make a world of one.

    When a rank fails, the others fail too: their connections break, or time out after `timeout_minutes`. The first rank
    to fail raises its error, the others exit without a message.
    """
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if size == 1:
        yield World(rank, size, _own_device(device_name))
        return
    timeout = timedelta(minutes=timeout_minutes)
    with explain_lost_ranks(CANNOT_START):
        store, _, _ = next(iter(rendezvous("env://", timeout=timeout)))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # torchrun keeps one store for all restarts
        store = PrefixStore(f"nmt/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    try:
        if ":" in device_name and int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > 1:
            raise UsageError(f"--device {device_name}: each process needs a GPU of its own; give --device cuda")
        device = _own_device(device_name)
        backend = "nccl" if device.type == "cuda" else "gloo"
        os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # a timeout is an exception, not an abort
        with explain_lost_ranks(CANNOT_START):
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
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
    """Raise a TrainingError where ranks communicate and one is lost.

    Args:
        what: the message, to which torch's is added.
        computing: not only communication is done here; other errors pass.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if computing and not isinstance(error, dist.DistError) and not any(sign in str(error) for sign in _GLOO):
            raise
        lines = [line.strip() for line in str(error).splitlines()]
        # NCCL's cause follows its first line; other errors have a trace of calls there.
        cause = " ".join(lines) if isinstance(error, dist.DistBackendError) else lines[0].split(". ")[0]
        raise TrainingError(f"{what} (torch: {cause})") from error


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", 0))


def _own_device(name: str) -> torch.device:
    device = choose_device(name, _local_rank())
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def _reports(error: BaseException, rank: int, store: Any) -> bool:
    """Return whether this rank reports `error`: the first rank to fail does; after a signal, rank 0."""
    if isinstance(error, (Interrupted, KeyboardInterrupt)):
        return rank == 0
    try:
        return bool(store.compare_set("failed", "", str(rank)) == str(rank).encode())
    except RuntimeError:  # the rank that hosts the store has ended
        return True
