"""Attention over the rows of packed sentences on a GPU, by PyTorch's kernel for sentences of different lengths."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt_cli.packing import Packing


def available(device: torch.device, dtype: torch.dtype, d_k: int, d_v: int, dropout: float) -> bool:
    """Return whether `attend` computes such heads on this device."""
    return (
        device.type == "cuda"
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and dtype in (torch.bfloat16, torch.float16)
        and d_k == d_v
        and d_k % 8 == 0
        and d_k <= 256
        and dropout == 0.0
    )


def attend(
    query: Tensor, key: Tensor, value: Tensor, queries: Packing, keys: Packing, causal: bool, reach: int = -1
) -> Tensor:
    """Softmax attention within each sentence: query [N, H, d_k], key and value [M, H, d_k] -> [N, H, d_k].

    Args:
        queries, keys: the packings of the rows, with `starts`.
        causal: a query attends to no key after its own position.
        reach: a query attends to so many positions on each side; -1 means to all.
    """
    assert queries.starts is not None
    assert keys.starts is not None
    sentences = (queries.starts, keys.starts, queries.longest, keys.longest)
    from torch.nn.attention.varlen import varlen_attn  # not at the top: it imports the compiler, which is large

    output = varlen_attn(query, key, value, *sentences, window_size=(reach, 0 if causal else reach))
    assert isinstance(output, Tensor)
    return output
