"""Multi-head attention (section 3.2.2) and the full attention of equation 1.

Letters: B sentences, T queries, S keys, H heads, d_k width of a query and a key, d_v width of a
value, d_model width of the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.errors import UsageError
from nmt_cli.layers.dropout import Dropout

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


class Layout(Protocol):
    """Where the tokens of a batch are, and which keys each query sees.

    `AttentionMask` is the layout of padded sentences.
    """

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """`query` and `key` [..., H, d_k] and `value` [..., H, d_v] -> [..., H, d_v].

        The layout says what the first dimensions are. Padded sentences have [B, T] and [B, S].
        """


@dataclass(frozen=True)
class AttentionMask:
    """Which keys each query of padded sentences may attend to."""

    padding: Tensor | None = None  # [B, S], True where the key is padding
    causal: bool = False  # a query attends to no key after its own position
    # Position of the first query among the keys. In a decoding step it is the length of the cache.
    offset: int = 0

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`: [B, T, H, d_k], [B, S, H, d_k] and [B, S, H, d_v] -> [B, T, H, d_v].

        Raises:
            UsageError: the kernel's output has another shape.
        """
        query = query.transpose(1, 2)  # [B, H, T, d_k]
        key = key.transpose(1, 2)  # [B, H, S, d_k]
        value = value.transpose(1, 2)  # [B, H, S, d_v]
        query = kernel.placed(query, torch.arange(query.size(2), device=query.device))
        key = kernel.placed(key, torch.arange(key.size(2), device=key.device))
        heads = self.compute(kernel, query, key, value)
        expected = [*query.shape[:3], value.size(3)]  # [B, H, T, d_v]
        if list(heads.shape) != expected:
            name = type(kernel).__qualname__
            raise UsageError(
                f"the attention kernel {name} returned {list(heads.shape)}, expected {expected}"
            )
        return heads.transpose(1, 2)

    def compute(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the output of `kernel`, [B, H, T, d_v]."""
        heads: Tensor = kernel(query, key, value, self)
        return heads

    def distances(self, query: Tensor, key: Tensor) -> Tensor:
        """Return how far each key is after each query, negative if it is before it: [T, S]."""
        queries = torch.arange(query.size(2), device=key.device) + self.offset
        return torch.arange(key.size(2), device=key.device) - queries[:, None]

    def allowed(self, query: Tensor, key: Tensor) -> Tensor | None:
        """Return a boolean mask that broadcasts to [B, 1, T, S], or None if all is allowed."""
        allowed = None
        if self.padding is not None:
            allowed = ~self.padding[:, None, None, :]  # [B, 1, 1, S]
        # A single query is the newest position of a decoding step. It comes after every key.
        if self.causal and query.size(2) > 1:
            causal = (self.distances(query, key) <= 0)[None, None]  # [1, 1, T, S]
            allowed = causal if allowed is None else allowed & causal
        return allowed


@dataclass(frozen=True)
class Recorded(AttentionMask):
    """A mask that keeps the weights [B, H, T, S] of each layer whose attention was computed."""

    weights: list[Tensor] = field(default_factory=list)

    def compute(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `AttentionMask`."""
        self.weights.append(kernel.weights(query, key, self))
        return super().compute(kernel, query, key, value)


class Kernel(nn.Module):
    """Attention of queries over keys and values: the base class of components of kind `attention`.

    A subclass has a `forward`, whose output for a query is a weighted mean of the values.
    """

    window: int | None = None
    """Positions on each side that softmax attention sees, -1 for all.

    Such attention may be computed without `forward`. None stands for any other kind of attention.
    """

    def __init_subclass__(cls) -> None:
        """A class with another `forward` than its base class does not inherit the window."""
        if "forward" in vars(cls) and "window" not in vars(cls):
            cls.window = None

    def __init__(self, config: Any = None, *, dropout: float = 0.0, **widths: int) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        """[B, H, T, d_k], [B, H, S, d_k] and [B, H, S, d_v] -> [B, H, T, d_v]."""
        raise NotImplementedError

    def weights(self, query: Tensor, key: Tensor, mask: AttentionMask) -> Tensor:
        """The weights [B, H, T, S] without dropout: the output for an identity matrix as values."""
        identity = torch.eye(key.size(2), dtype=key.dtype, device=key.device)
        return self(query, key, identity.expand(*key.shape[:2], -1, -1), mask)

    def placed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return queries or keys [..., d_k] with their positions in them, as `forward` gets them.

        Args:
            positions: broadcasts to the shape of `x` without its last dimension.
        """
        return x

    def flops(self, lengths: Lengths, width: int) -> float:
        """Operations of one head, with d_k + d_v = `width`, in self-attention over sentences.

        Only matrix products count. A multiply-add is two operations, and a causal mask saves none.
        """
        return 2.0 * width * float((lengths * lengths).sum())


def softmax_weights(
    query: Tensor, key: Tensor, mask: AttentionMask, bias: Tensor | None = None
) -> Tensor:
    """softmax(Q K^T / sqrt(d_k) + bias) over the allowed keys: [B, H, T, S].

    A query without an allowed key gets NaN.

    Args:
        bias: broadcasts to [B, H, T, S].
    """
    d_k = query.size(-1)
    scores = torch.matmul(query * d_k**-0.5, key.mT)  # [B, H, T, S]
    if bias is not None:
        scores = scores + bias
    allowed = mask.allowed(query, key)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    return scores.softmax(-1)


class FullAttention(Kernel):
    """Scaled dot-product attention, equation 1: softmax(Q K^T / sqrt(d_k)) V."""

    window = -1

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: AttentionMask,
    ) -> Tensor:
        """See `Kernel`."""
        weights = softmax_weights(query, key, mask)  # [B, H, T, S]
        return torch.matmul(self.dropout(weights), value)


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O.

    d_k and d_v need not be d_model / h (Table 3, rows A and B). The paper has no biases.

    Args:
        cross: keys and values are made of other rows than the queries.
        normalised: divide each query and each key of a head by its root mean square, without a
            learned gain. A score is then sqrt(d_k) times their cosine. Henry et al. 2020,
            "Query-Key Normalization for Transformers", learn the factor, and Dehghani et al. 2023,
            "Scaling Vision Transformers", have layer normalisation.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_k: int,
        d_v: int,
        kernel: Kernel,
        *,
        biases: bool = False,
        cross: bool = False,
        normalised: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.widths = {"q": d_k, "k": d_k, "v": d_v}
        self.cross = cross
        self.normalised = normalised
        self.w_q = nn.Linear(d_model, num_heads * d_k, bias=biases)
        self.w_k = nn.Linear(d_model, num_heads * d_k, bias=biases)
        self.w_v = nn.Linear(d_model, num_heads * d_v, bias=biases)
        self.w_o = nn.Linear(num_heads * d_v, d_model, bias=biases)
        self.kernel = kernel

    def forward(self, x: Tensor, context: Tensor | Sequence[Tensor], layout: Layout) -> Tensor:
        """Queries from `x` [B, T, d_model], keys and values from `context`: [B, T, d_model].

        The context of cross-attention is the memory [B, S, d_model], or the keys and values
        that were made of it. A layout may have other dimensions before the last.
        """
        if self.cross:
            (query,) = self.heads(x, "q")
            if isinstance(context, Tensor):
                context = self.heads(context, "kv")
            key, value = context
        else:
            query, key, value = self.heads(x, "qkv")
        heads = layout.attend(self.kernel, query, key, value)  # [B, T, H, d_v]
        return self.w_o(heads.flatten(-2))

    def heads(self, x: Tensor, letters: str) -> list[Tensor]:
        """Queries "q", keys "k" and values "v" of `x` [..., d_model], in one product.

        Returns:
            [..., H, d_k or d_v] for each letter.
        """
        weight, bias = self.stacked(letters)
        return self.split(F.linear(x, weight, bias), letters)

    def split(self, projected: Tensor, letters: str) -> list[Tensor]:
        """Cut the product of `heads`, [..., H * (sum of the widths)], into the heads."""
        sizes = [self.num_heads * self.widths[letter] for letter in letters]
        heads = []
        for letter, part in zip(letters, projected.split_with_sizes(sizes, -1), strict=True):
            width = self.widths[letter]
            head = part.view(*part.shape[:-1], self.num_heads, width)  # [..., H, width]
            if self.normalised and letter != "v":
                head = F.rms_norm(head, (width,), eps=1e-6)
            heads.append(head)
        return heads

    def stacked(self, letters: str) -> tuple[Tensor, Tensor | None]:
        """The weights of these projections, one below the other, and their biases."""
        linears = [getattr(self, f"w_{letter}") for letter in letters]
        if len(linears) == 1:
            return linears[0].weight, linears[0].bias
        # One product is faster than three.
        weight = torch.cat([linear.weight for linear in linears])
        if linears[0].bias is None:
            return weight, None
        return weight, torch.cat([linear.bias for linear in linears])
