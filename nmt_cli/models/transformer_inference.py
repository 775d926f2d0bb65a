"""Decoding with a Transformer: frozen weights, and one target position at a time with cached keys and values.

Letters: A sentences, W hypotheses of each, N = A * W rows, S source length, C columns of the cache, H heads, V
vocabulary.

The keys and values of all hypotheses of a sentence lie in one cache, a column for each hypothesis and position. A
hypothesis sees the columns of its own past through a mask. So when the search reorders the hypotheses, the mask changes
and the cache does not; columns that no hypothesis sees any more leave it when it is full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt_cli.interfaces import PAD
from nmt_cli.layers.frozen import frozen, frozen_linear
from nmt_cli.layers.layout import Cached, Newest, Step
from nmt_cli.layers.sublayer import FeedForward
from nmt_cli.packing import Packing

FIRST_COLUMNS = 64
"""Columns of a new cache."""


@dataclass
class TransformerState:
    """The state of the decoder between two steps. `select` and the next step use it up."""

    source: list[Tensor]  # of each layer: keys and values [A, H, S, d_k + d_v]
    source_mask: Tensor | None  # [A, H, 1, S], -inf at padding; None without padding
    target: list[Tensor]  # of each layer: keys and values [A, H, at least C, d_k + d_v]
    mask: Tensor  # [A, W, C], 0 at the columns of a hypothesis' own past and -inf at the others
    own: Tensor  # [W, W], the mask of the newest position
    length: int = 0  # target positions so far

    def select(self, rows: Tensor) -> TransformerState:
        """See `DecoderState`."""
        A, W, C = self.mask.shape
        self.mask = self.mask.view(A * W, C)[rows.flatten()].view(*rows.shape, C)
        if A > 1:
            self._keep(rows[:, 0].div(W, rounding_mode="floor"))
        return self

    def extend(self, positions: Any) -> tuple[Tensor, Step]:
        """Make room for the next position: W columns, each seen by its own hypothesis. Return its encoding, too."""
        A, W, C = self.mask.shape
        if self.target[0].size(2) < C + W:
            seen = (self.mask == 0).any(dim=1)  # [A, C]
            C = int(seen.sum(dim=1).max())
            columns = seen.sort(dim=1, descending=True, stable=True).indices[:, :C]
            self.target = [_with_columns(layer, columns, max(FIRST_COLUMNS, 2 * (C + W))) for layer in self.target]
            self.mask = self.mask.gather(2, columns[:, None].expand(A, W, C))
        if len(self.own) != W:
            self.own = self.own.new_full((W, W), -torch.inf).fill_diagonal_(0.0)
        self.mask = torch.cat([self.mask, self.own.expand(A, W, W)], dim=2)
        position = torch.full((1,), self.length, device=self.mask.device)
        self.length += 1
        alone = W == 1 and self.length == C + W
        step = Step(self.mask, self.target[0].size(1), position, slice(C, C + W), alone)
        return positions(self.length - 1, 1), step

    def _keep(self, sentences: Tensor) -> None:
        """Keep the caches of `sentences` [A'], in this order, A' at most A. Only those that change place are copied."""
        kept = len(sentences)
        places = (sentences != torch.arange(kept, device=sentences.device)).nonzero().flatten()
        tensors = [*self.source, *self.target, *([] if self.source_mask is None else [self.source_mask])]
        if len(places):
            for tensor in tensors:
                tensor[places] = tensor[sentences[places]]
        if kept < len(tensors[0]):
            self.source, self.target = ([each[:kept] for each in layers] for layers in (self.source, self.target))
            self.source_mask = None if self.source_mask is None else self.source_mask[:kept]


@dataclass(kw_only=True)
class FixedState(TransformerState):
    """The state of `FixedShapes`. Tensors are changed in place."""

    now: Tensor  # [1], target positions so far
    encodings: Tensor  # [positions, d_model]
    columns: int = 0  # that a step sees

    def tensors(self) -> list[Tensor]:
        """See `FixedShapes`."""
        assert self.source_mask is not None
        return [*self.source, self.source_mask, self.mask, *(cache[:, :, : self.columns] for cache in self.target)]

    def select(self, rows: Tensor) -> FixedState:
        """See `DecoderState`."""
        self.mask.copy_(self.mask.flatten(0, 1)[rows.flatten()].view_as(self.mask))
        return self

    def extend(self, positions: Any) -> tuple[Tensor, Step]:
        """As that of a `TransformerState`."""
        W = len(self.own)
        position, newest = self.now.clone(), self.now * W + torch.arange(W, device=self.now.device)
        self.mask[:, :, newest] = self.own
        self.now += 1
        return self.encodings[position], Step(self.mask[:, :, : self.columns], self.source[0].size(1), position, newest)


class TransformerInference:
    """A `Decodable` with the weights of `model`, frozen. On a GPU, it is one of `FixedShapes`.

    Args:
        model: a `Transformer`, whose file imports this one.
        dtype: of the matrix products with weights, float32, bfloat16 or int8; all else is float32. On a GPU, bfloat16
            is the type of all but the log-probabilities.
        gpu: whether to decode as on a GPU.
    """

    def __init__(self, model: Any, dtype: str = "float32", gpu: bool | None = None) -> None:
        gpu = model.output_weight.is_cuda if gpu is None else gpu
        plain = all(type(layer.feed_forward) is FeedForward for layer in model.decoder)
        full = all(layer.self_attention.kernel.window == -1 for layer in model.decoder)
        self.kept: dict[Any, Any] | None = {} if gpu and plain and full else None
        self.vocabulary_size = model.vocabulary_size
        low = gpu and plain and dtype == "bfloat16"
        self._model = frozen(model, dtype, torch.bfloat16 if low else torch.float32)
        self._output = frozen_linear(model.output_weight, model.output_bias, dtype)

    @torch.no_grad()
    def start(self, source: Tensor) -> TransformerState:
        """Encode `source` [B, S], and compute the keys and values of every decoder layer."""
        sources = Packing.of(source != PAD, multiple=1)
        memory = self._model.encode(source, sources)
        made = (layer.cross_attention.heads(memory, "kv") for layer in self._model.decoder)
        caches = [sources.unpack(torch.cat(each, 2)).transpose(1, 2).contiguous() for each in made]
        B, H, _, width = caches[0].shape
        padding = sources.padding()
        mask = caches[0].new_zeros(padding.shape).masked_fill_(padding, -torch.inf)
        source_mask = None if sources.full else mask[:, None, None].repeat(1, H, 1, 1)
        target = [each.new_empty(B, H, FIRST_COLUMNS, width) for each in caches]
        return TransformerState(caches, source_mask, target, mask.new_empty(B, 1, 0), mask.new_zeros(1, 1))

    @torch.no_grad()
    def start_fixed(self, source: Tensor, width: int, positions: int) -> FixedState:
        """See `FixedShapes`. The caches are zeros, as what is not seen must be finite."""
        state, columns = vars(self.start(source)), positions * width
        cache = state["source"][0]
        A, H, _, both = cache.shape
        state["target"] = [cache.new_zeros(A, H, columns, both) for _ in state["source"]]
        state["mask"] = cache.new_full((A, width, columns), -torch.inf)
        state["own"] = cache.new_full((width, width), -torch.inf).fill_diagonal_(0.0)
        now = torch.zeros(1, dtype=torch.long, device=source.device)
        return FixedState(**state, now=now, encodings=self._model.target_positions(0, positions))

    @torch.no_grad()
    def step(self, tokens: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """See `Decodable`."""
        model = self._model
        encoding, step = state.extend(model.target_positions)
        x = model.target_embedding(tokens) + encoding
        across = Newest(x.new_zeros(1, 1, 1) if state.source_mask is None else state.source_mask.flatten(0, 1))
        for layer, source, cache in zip(model.decoder, state.source, state.target, strict=True):
            memory = source.tensor_split((layer.cross_attention.d_k,), 3)
            x = layer(x, memory, Cached(step, cache), across)
        logits = self._output(model.decoder_norm(x))
        if logits.dtype != torch.float32:
            return torch.log_softmax(logits, dim=1, dtype=torch.float32), state
        return torch.log_softmax(logits, dim=1, out=logits), state  # in place: twice as fast where V is large


def _with_columns(cache: Tensor, columns: Tensor, capacity: int) -> Tensor:
    """Return a copy of `cache` with `columns` [A, C] of each sentence, and room for `capacity` columns."""
    A, H, old, width = cache.shape
    rows = torch.arange(A * H, device=cache.device).view(A, H, 1) * old + columns[:, None]  # [A, H, C]
    copy = cache.new_empty(A, H, capacity, width)
    copy[:, :, : columns.size(1)] = cache.flatten(0, 2).index_select(0, rows.flatten()).view(*rows.shape, width)
    return copy
