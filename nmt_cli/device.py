"""Devices, precision, and memory."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch import Tensor

from nmt_cli.cores import Sizes
from nmt_cli.errors import NmtError, UsageError, gpu_called

Result = TypeVar("Result")
Item = TypeVar("Item")
Load = Callable[[Any, Any], Any]  # (sentence pairs, indices) -> batch
# Modules that may be missing.
ROOMS = {"cpu": "nmt_cli.fast.cpu.device", "cuda": "nmt_cli.fast.cuda.device"}
UNFIT = "there is none for this model on this device"


def choose_device(name: str) -> torch.device:
    """Return the device called `auto`, `cpu`, `cuda` or `cuda:N`.

    Raises: as `gpu_called`.
    """
    index = gpu_called(name, lambda: torch.cuda.is_available() and torch.cuda.device_count())
    if index is None:
        return torch.device("cpu")
    # cuDNN's attention makes a plan for each new shape, which takes longer than an update, and its
    # backward pass in bfloat16 has given NaN.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device("cuda", index)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Return a context in which matrix products are `precision`: float32, bfloat16 or float16."""
    dtype = torch.float16 if precision == "float16" else torch.bfloat16
    return torch.autocast(device.type, dtype, enabled=precision != "float32")


class HostCopies:
    """Copies of tensors in the host's memory."""

    def start(
        self, *groups: Mapping[str, Tensor]
    ) -> tuple[list[dict[str, Tensor]], Callable[[], None]]:
        """Return the copies, and a function that waits until they are made.

        The next call may overwrite them.
        """
        copies = []
        for group in groups:
            copies.append({name: tensor.to("cpu", copy=True) for name, tensor in group.items()})
        return copies, lambda: None


class Plain:
    """The computations that depend on a device, each in its simple form.

    `nmt_cli.fast` has a subclass for each kind of device that it makes faster: see `fast`.
    """

    sizes = Sizes(batch_tokens=2048, hypotheses=128, logit_rows=1024)
    # Whether micro-batches are made smaller until they fit. A CPU's system would end the process.
    tries_memory = False
    # Parts of an update that have kernels of our own, and why PyTorch computes them, or "".
    kernels: Mapping[str, str] = {}

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @property
    def name(self) -> str:
        """Such as `fast on cuda`, which checkpoints record."""
        kind = "plain" if type(self) is Plain else "fast"
        return f"{kind} on {self.device.type}"

    def prepare_training(self) -> None:
        """Set what holds for this process, before it trains."""

    def prepare_decoding(self) -> None:
        """Set what holds for this process, before it loads a model to decode with."""

    def precision(self, model: Any, deterministic: bool) -> str:
        """Return the precision of training: `bfloat16`, `float16` or `float32`."""
        return "float32"

    def decoding_dtype(self) -> str:
        """Return the type of products in decoding, if none is asked for."""
        return "float32"

    def decodable(self, model: Any, dtype: str) -> Any:
        """Return the `Decodable` of a `Model`, with the weights that it has now.

        Args:
            model: in evaluation mode.
            dtype: of the products with weights: float32, bfloat16, float16 or int8.

        Raises:
            UsageError: the model or the device does not have this `dtype`.
        """
        if dtype == "int8":
            raise UsageError("--dtype int8 needs nmt_cli.fast: use float32 or bfloat16")
        return model.decodable(dtype)

    def search(
        self, model: Any, search: Callable[..., Result]
    ) -> Callable[[Iterable[Sequence[Any]]], Iterator[Result]]:
        """Return a function that yields what `search` returns for each batch, in order.

        A batch is what `search` takes after the model: ids on the host, a `Request` for each row,
        `SearchSettings`, and a constraint or None.
        """

        def search_batches(batches: Iterable[Sequence[Any]]) -> Iterator[Result]:
            for source, *others in batches:
                yield search(model, source.to(self.device), *others)

        return search_batches

    def check_kernels(self, model: Any, criterion: Any, precision: str) -> Mapping[str, str]:
        """Return `kernels` for this model after a check of each. Its lines are not yet exchanged.

        `UNFIT` stands for a part of the model that has no kernel.
        """
        return {}

    def fit(self, model: Any, criterion: Any = None) -> None:
        """Make a model on this device, and its criterion, faster. They compute the same.

        An update has the `kernels` that work.
        """

    def compile(self, model: Any, criterion: Any, wanted: bool | None) -> None:
        """Compile the layers and the criterion when they are first used.

        Args:
            wanted: None if it is to be done where it saves time.
        """

    def takes_bins(self, model: Any, criterion: Any) -> bool:
        """Return whether batches are so dense that a micro-batch may mix lengths."""
        return False

    def loader(self, load: Load, model: Any, bins: bool) -> Load:
        """Return the function that loads sentences as a batch: `load`, or a faster one."""
        return load

    def gradients(self, plain: Any, replay: bool) -> Any:
        """Return the object that computes an update's gradients: `plain`, or a faster one.

        Args:
            replay: the shapes of batches repeat, so that what is recorded of one batch may be
                replayed for others.
        """
        return plain

    def change(
        self, change: Callable[[Tensor], None], optimizer: Any, gradients: Any
    ) -> Callable[[Tensor], None]:
        """Return the function that changes the weights: `change`, or a faster one."""
        return change

    def host_copies(self) -> HostCopies:
        """Return the copies of a run's tensors, which are saved while the run goes on."""
        return HostCopies()


def fast(device: torch.device) -> Plain:
    """Return the `Fast` of nmt_cli/fast for `device`, or `Plain` without it or with NMT_FAST=0."""
    name = ROOMS.get(device.type)
    if name is None or os.environ.get("NMT_FAST") == "0":
        return Plain(device)
    try:
        room = importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Another module that is missing is an error of the room.
        if not name.startswith(str(error.name)):
            raise
        return Plain(device)
    chosen: Plain = room.Fast(device)
    return chosen


def product_dtype(tensor: Tensor) -> torch.dtype:
    """Return the type of a matrix product with `tensor`, which autocast may have lowered."""
    device = tensor.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return tensor.dtype


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the machine is out of memory."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    # A graph's launch and some libraries do not ask PyTorch for memory: the last two are theirs.
    signs = ("can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return any(sign in str(error) for sign in signs)


def in_halves(
    work: Callable[[Sequence[Item]], list[Result]],
    items: Sequence[Item],
    explain: Callable[[Item], str],
) -> list[Result]:
    """Return `work(items)`, one result for each item, by halves where memory does not suffice.

    Raises:
        NmtError: one item does not fit. `explain(item)` is the message.
    """
    try:
        return work(items)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if len(items) == 1:
            raise NmtError(explain(items[0])) from error
    # Not in the except clause, which holds the tensors of the attempt that failed.
    half = len(items) // 2
    return in_halves(work, items[:half], explain) + in_halves(work, items[half:], explain)
