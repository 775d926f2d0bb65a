"""Devices, precision, and memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import torch
from torch import Tensor

from nmt_cli.cores import available_cores
from nmt_cli.errors import NmtError, UsageError, counted, environment_number, shown

Item = TypeVar("Item")
Result = TypeVar("Result")
PINNED_DEVICES = {"cuda"}  # whose tensors `HostCopies` copies into pinned memory


def choose_device(name: str) -> torch.device:
    """Return the device called `auto`, `cpu`, `cuda` or `cuda:N`. `auto` is the rank's GPU if there is one.

    Raises:
        UsageError: the name is none of these, or there is no such GPU.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if name != "cuda" and not (name.startswith("cuda:") and name[5:].isdecimal()):
        raise UsageError(f"--device must be auto, cpu, cuda or cuda:N, not {shown(name)}")
    index = int(name[5:]) if ":" in name else environment_number("LOCAL_RANK", 0)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        seen = f"this process sees {counted(count, 'GPU')}" if count else "no GPU is available"
        raise UsageError(f"--device {name}: {seen}; use --device cpu{', or fewer processes' if count else ''}")
    # cuDNN's attention makes a plan for each new shape, which takes longer than an update, and its backward pass in
    # bfloat16 has given NaN.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device("cuda", index)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Return a context in which matrix products are `precision`: float32, bfloat16 or float16."""
    dtype = torch.float16 if precision == "float16" else torch.bfloat16
    return torch.autocast(device.type, dtype, enabled=precision != "float32")


class HostCopies:
    """Copies of tensors in the host's memory, which is pinned and kept for the next copies of a GPU's tensors."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], Tensor] = {}

    def start(self, *groups: Mapping[str, Tensor]) -> tuple[list[dict[str, Tensor]], Callable[[], None]]:
        """Return the copies, and a function that waits until a GPU has made them. The next call overwrites these.

        They are made on the current stream, before the next update: a CUDA graph could not wait for another stream.
        """
        copies = [
            {name: self._start_one((number, name), tensor) for name, tensor in group.items()}
            for number, group in enumerate(groups)
        ]
        if not self._kept:
            return copies, lambda: None
        done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        done.record()
        return copies, done.synchronize

    def _start_one(self, key: tuple[int, str], tensor: Tensor) -> Tensor:
        if tensor.device.type not in PINNED_DEVICES:
            return tensor.to("cpu", copy=True)
        if key not in self._kept:
            self._kept[key] = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
        return self._kept[key].copy_(tensor, non_blocking=True)


def bfloat16_in_hardware() -> bool:
    """Return whether the CPU multiplies bfloat16 matrices faster than by converting them."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def product_dtype(tensor: Tensor) -> torch.dtype:
    """Return the type of a matrix product with `tensor`, which autocast may have lowered."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


def lowered(x: Tensor) -> Tensor:
    """Return hidden states in the type of products: they are short, and each product need not cast them."""
    return x.to(product_dtype(x))


def bound_product_cache() -> None:
    """Let oneDNN keep the code of few shapes of products: each step of a search may have a new one, of up to 1,024."""
    # It has an effect before the first product of the process.
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "64")


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next tensor, where it is glibc: new pages cost time."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(-3, 1 << 30) or library.mallopt(-3, 1 << 25)  # M_MMAP_THRESHOLD; glibc < 2.35 refuses the first
        library.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD


def prepare_cpu() -> None:
    # PyTorch starts a thread for each core, but more than a container's quota wait for each other.
    if "OMP_NUM_THREADS" not in os.environ and available_cores() < torch.get_num_threads():
        torch.set_num_threads(available_cores())
    keep_freed_memory()
    bound_product_cache()
    # oneDNN's float32 products are faster than MKL's. PyTorch uses them only where bfloat16 is allowed instead, and of
    # the x86 CPUs, only those with AMX use that.
    if platform.machine() in ("x86_64", "AMD64") and not torch.cpu._is_amx_tile_supported():
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the machine is out of memory."""
    # The last two are those of a graph's launch and of libraries, which do not ask PyTorch for memory.
    signs = ("can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(sign in str(error) for sign in signs)


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
