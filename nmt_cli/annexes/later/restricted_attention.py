"""Restricted self-attention: each position attends only to a neighbourhood (sections 4 and 7).

Letters as in `attention.py`. n is the length of the sequence.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.annexes.later.settings import RestrictedAttentionConfig
from nmt_cli.layers.attention import AttentionMask, Kernel, softmax_weights

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


class RestrictedAttention(Kernel):
    """Restricted self-attention, the last row of Table 1: O(r n d) instead of O(n^2 d).

    Queries are cut into blocks of r / 2 positions. The keys of a block are its own positions and
    the positions of the two blocks beside it.
    """

    def __init__(
        self, config: RestrictedAttentionConfig, *, dropout: float = 0.0, **widths: int
    ) -> None:
        super().__init__(dropout=dropout)
        self.reach = config.neighbourhood // 2
        self.window = self.reach

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        """See `Kernel`. A query without any allowed key yields zeros."""
        if query.size(2) == 1:
            return self._step(query, key, value, mask)
        length, d_k = query.shape[2:]
        blocks = -(-length // self.reach)
        queries = self._blocks(query, blocks)  # [B, H, blocks, reach, d_k]
        keys = self._neighbours(key, blocks)  # [B, H, blocks, 3 reach, d_k]
        values = self._neighbours(value, blocks)  # [B, H, blocks, 3 reach, d_v]
        scores = torch.matmul(queries, keys.transpose(-1, -2)) * d_k**-0.5
        allowed = self._allowed(length, blocks, mask, query.device)
        weights = scores.masked_fill(~allowed, -math.inf).softmax(-1).nan_to_num(0.0)
        heads = torch.matmul(self.dropout(weights), values)
        return heads.flatten(2, 3)[:, :, :length]

    def flops(self, lengths: Lengths, width: int) -> float:
        """See `Kernel`. A query has at most 2 floor(r / 2) + 1 keys: padding is not counted."""
        return 2.0 * width * float((lengths * lengths.clip(max=2 * self.reach + 1)).sum())

    def _step(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        """A single query, as in a decoding step, at position `mask.offset`."""
        first = max(0, mask.offset - self.reach)
        end = mask.offset + 1
        if not mask.causal:
            end += self.reach
        padding = None
        if mask.padding is not None:
            padding = mask.padding[:, first:end]
        keys = key[:, :, first:end]
        weights = softmax_weights(query, keys, AttentionMask(padding)).nan_to_num(0.0)
        return torch.matmul(self.dropout(weights), value[:, :, first:end])

    def _blocks(self, x: Tensor, blocks: int) -> Tensor:
        """[B, H, n, d] -> [B, H, blocks, reach, d], padded with zeros."""
        padded = F.pad(x, (0, 0, 0, blocks * self.reach - x.size(2)))
        return padded.reshape(*x.shape[:2], blocks, self.reach, x.size(-1))

    def _neighbours(self, x: Tensor, blocks: int) -> Tensor:
        """[B, H, n, d] -> [B, H, blocks, 3 reach, d]: each block between its two neighbours."""
        padded = F.pad(self._blocks(x, blocks), (0, 0, 0, 0, 1, 1))
        return torch.cat([padded[:, :, :-2], padded[:, :, 1:-1], padded[:, :, 2:]], dim=3)

    def _allowed(
        self, length: int, blocks: int, mask: AttentionMask, device: torch.device
    ) -> Tensor:
        """[B or 1, 1, blocks, reach, 3 reach]: True where the query may attend to the key."""
        queries = torch.arange(blocks * self.reach, device=device).view(blocks, self.reach, 1)
        first_keys = (torch.arange(blocks, device=device) - 1) * self.reach
        in_block = torch.arange(3 * self.reach, device=device)
        keys = first_keys[:, None, None] + in_block  # [blocks, 1, 3 reach]
        allowed = ((queries - keys).abs() <= self.reach) & (keys >= 0) & (keys < length)
        if mask.causal:
            allowed = allowed & (keys <= queries)
        allowed = allowed[None, None]
        if mask.padding is not None:
            as_values = mask.padding[:, None, :, None].float()  # [B, 1, n, 1]
            padding = self._neighbours(as_values, blocks)  # [B, 1, blocks, 3 reach, 1]
            allowed = allowed & (padding[:, :, :, None, :, 0] == 0)
        return allowed
