"""Computing on a CPU."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from typing import Any

import torch

from nmt_cli.cores import Sizes, available_cores
from nmt_cli.device import Load, Plain
from nmt_cli.fast import rows
from nmt_cli.fast.cpu.attention import full_attention
from nmt_cli.fast.cpu.dropout import dropout_by_bits
from nmt_cli.fast.exchange import exchange
from nmt_cli.fast.inference import FrozenTransformer, takes
from nmt_cli.fast.loss import ChunkedCrossEntropy, fit_criterion
from nmt_cli.interfaces import Decodable
from nmt_cli.layers.attention import FullAttention
from nmt_cli.layers.dropout import Dropout
from nmt_cli.model import Model

BLOCK = 1 << 19  # logits in a block of a loss: they stay in the caches
METHODS = {**rows.METHODS, FullAttention.forward: full_attention, Dropout.forward: dropout_by_bits}

SMALLEST_IN_BFLOAT16 = 1_000_000  # parameters: smaller models are not faster with it


class Fast(Plain):
    """What a CPU does better."""

    sizes = Sizes(batch_tokens=4096, hypotheses=256, logit_rows=1024)

    def prepare_training(self) -> None:
        """See `Plain`."""
        # PyTorch starts a thread for each core, but more than a container's quota wait for each
        # other.
        if "OMP_NUM_THREADS" not in os.environ and available_cores() < torch.get_num_threads():
            torch.set_num_threads(available_cores())
        self.prepare_decoding()
        # oneDNN's float32 products are faster than MKL's. PyTorch uses them only where bfloat16 is
        # allowed instead, and of the x86 CPUs, only those with AMX use that.
        if platform.machine() in ("x86_64", "AMD64") and not torch.cpu._is_amx_tile_supported():
            torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]

    def prepare_decoding(self) -> None:
        """See `Plain`."""
        keep_freed_memory()
        bound_product_cache()

    def decodable(self, model: Model, dtype: str) -> Decodable:
        """See `Plain`."""
        return FrozenTransformer(model, dtype) if takes(model) else model.decodable(dtype)

    def precision(self, model: Any, deterministic: bool) -> str:
        """See `Plain`. bfloat16 for large models, unless each CPU must give the same bits."""
        size = sum(parameter.numel() for parameter in model.parameters())
        if bfloat16_in_hardware() and size >= SMALLEST_IN_BFLOAT16 and not deterministic:
            return "bfloat16"
        return "float32"

    def fit(self, model: Any, criterion: Any = None) -> None:
        """See `Plain`."""
        exchange(model, METHODS)
        if criterion is not None:
            fit_criterion(criterion, ChunkedCrossEntropy(self.sizes.logit_rows, BLOCK))

    def loader(self, load: Load, model: Any, bins: bool) -> Load:
        """See `Plain`."""
        return lambda corpus, indices: rows.row_batch(load(corpus, indices), model)


def bfloat16_in_hardware() -> bool:
    """Return whether the CPU multiplies bfloat16 matrices faster than by converting them."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def bound_product_cache() -> None:
    """Let oneDNN keep the code of 64 shapes of products, in place of 1,024.

    Each step of a search may have a new shape. It has an effect before the first product.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "64")


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next tensor: new pages cost time."""
    mmap_threshold, trim_threshold = -3, -1  # as malloc.h has them
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        accepted = mallopt(mmap_threshold, 1 << 30)
        if not accepted:  # glibc before 2.35
            mallopt(mmap_threshold, 1 << 25)
        mallopt(trim_threshold, (1 << 31) - 1)
