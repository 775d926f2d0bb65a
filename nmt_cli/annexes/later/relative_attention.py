"""Self-attention with relative positions (Shaw, Uszkoreit and Vaswani 2018, sections 3.1 to 3.3).

Letters as in `attention.py`. k is the clipping distance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.annexes.later.settings import RelativeAttentionConfig
from nmt_cli.layers.attention import AttentionMask, Kernel, softmax_weights

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


class RelativeAttention(Kernel):
    """A relative position has learned vectors for keys (equation 4) and for values (equation 3).

    All heads of a layer share the vectors (section 3.3), as in the paper's big model. In its base
    model, each head has its own.
    """

    def __init__(
        self, config: RelativeAttentionConfig, *, dropout: float = 0.0, d_k: int, d_v: int
    ) -> None:
        super().__init__(dropout=dropout)
        self.clipping_distance = config.clipping_distance
        self.a_k = nn.Parameter(torch.empty(2 * config.clipping_distance + 1, d_k))
        self.a_v = nn.Parameter(torch.empty(2 * config.clipping_distance + 1, d_v))
        nn.init.xavier_uniform_(self.a_k)
        nn.init.xavier_uniform_(self.a_v)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        weights = self.dropout(self.weights(query, key, mask))
        a_v = F.embedding(self._relative(query, key, mask), self.a_v)  # [T, S, d_v]
        return torch.matmul(weights, value) + torch.einsum("bhts,tsd->bhtd", weights, a_v)

    def weights(self, query: Tensor, key: Tensor, mask: AttentionMask) -> Tensor:
        """See `Kernel`. An identity matrix as values would get the vectors of equation 3, too."""
        a_k = F.embedding(self._relative(query, key, mask), self.a_k)  # [T, S, d_k]
        bias = torch.einsum("bhtd,tsd->bhts", query * query.size(-1) ** -0.5, a_k)
        return softmax_weights(query, key, mask, bias)

    def flops(self, lengths: Lengths, width: int) -> float:
        """See `Kernel`. The vectors cost as much as the keys and values."""
        return 2.0 * super().flops(lengths, width)

    def _relative(self, query: Tensor, key: Tensor, mask: AttentionMask) -> Tensor:
        """clip(j - i, k) + k for query i and key j: [T, S]."""
        k = self.clipping_distance
        return mask.distances(query, key).clamp(-k, k) + k
