"""Decoding with a Transformer: frozen weights, and one target position at a time with cached keys and values.

Letters: A sentences, W hypotheses of each, N = A * W rows, S source length, C columns of the cache, H heads, V
vocabulary.

The keys and values of all hypotheses of a sentence lie in one cache, a column for each hypothesis and position. A
hypothesis sees the columns of its own past through a mask. So when the search reorders the hypotheses, the mask changes
and the cache does not. Columns that no hypothesis sees any more leave it when it is full.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.fast.cpu.attention import softmax_
from nmt_cli.fast.exchange import class_of
from nmt_cli.fast.layout import layout_of
from nmt_cli.fast.packing import Packing
from nmt_cli.fast.products import frozen_linear
from nmt_cli.fast.rows import embedded
from nmt_cli.layers.attention import AttentionMask, Layout, MultiHeadAttention
from nmt_cli.layers.sublayer import FeedForward, Residual
from nmt_cli.models.transformer import DecoderLayer, EncoderLayer, Transformer

FIRST_COLUMNS = 64
"""Columns of a new cache."""

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Equation 1 for keys in any order.

[A, H, W, d_k], [A, H, S, d_k], [A, H, S, d_v] and a mask [A * H, W, S] of 0 and -inf -> [A, H, W, d_v].
"""


def attend_in_products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """See `Attend`. On a CPU this is faster than PyTorch's kernel."""
    scores = torch.baddbmm(mask, query.flatten(0, 1), key.flatten(0, 1).mT, alpha=query.size(3) ** -0.5)
    return torch.bmm(softmax_(scores), value.flatten(0, 1)).view(*query.shape[:3], -1)


def attend_in_one_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """See `Attend`. A single 0 hides nothing. Other masks need a last dimension that is not expanded."""
    seen = None if mask.numel() == 1 else mask.view(-1, min(query.size(1), len(mask)), *mask.shape[1:])
    return F.scaled_dot_product_attention(query, key, value, seen)


class Step:
    """What all layers need in one step: `columns` [A, W, C] is 0 where a hypothesis sees a column, and -inf elsewhere.

    Args:
        columns: of the positions so far, the newest included.
        position: of the newest tokens, [1].
        newest: the W columns of the newest tokens.
        alone: every hypothesis sees every column.
    """

    def __init__(
        self, columns: Tensor, heads: int, position: Tensor, newest: slice | Tensor, alone: bool = False
    ) -> None:
        A, W, C = columns.shape
        self.columns, self.position, self.newest = columns, position, newest
        self.mask = columns[:1, :, :1] if alone else columns[:, None].expand(A, heads, W, C).flatten(0, 1)

    @cached_property
    def own(self) -> Tensor:
        """The columns [A, W, length] of each hypothesis' past, in the order of positions."""
        return (self.columns == 0).nonzero()[:, 2].view(*self.columns.shape[:2], -1)


class FrozenAttention:
    """`MultiHeadAttention` with frozen projections.

    These modules are plain objects. A short step is mostly Python, and calls of an `nn.Module` look for hooks.
    """

    def __init__(self, attention: MultiHeadAttention, dtype: str, attend: Attend) -> None:
        letters = ("q", "kv") if attention.cross else ("qkv",)
        self.products = {each: frozen_linear(*attention.stacked(each), dtype=dtype) for each in letters}
        self.output = frozen_linear(attention.w_o.weight, attention.w_o.bias, dtype)
        self.split, self.kernel, self.d_k, self.attend = attention.split, attention.kernel, attention.d_k, attend

    def heads(self, x: Tensor, letters: str) -> list[Tensor]:
        """See `MultiHeadAttention`."""
        return self.split(self.products[letters](x), letters)

    def encoded(self, x: Tensor, layout: Layout) -> Tensor:
        """Attention among the rows `x` [N, d_model] of the source: [N, d_model]."""
        return self.output(layout.attend(self.kernel, *self.heads(x, "qkv")).flatten(1))

    def over_past(self, x: Tensor, step: Step, cache: Tensor) -> Tensor:
        """Attention of the newest positions `x` [N, d_model] to their own pasts; they enter the cache of the layer.

        Args:
            cache: keys and values [A, H, at least C, d_k + d_v].
        """
        A, _, C = step.columns.shape
        query, key, value = self.heads(x, "qkv")
        query, key = self.kernel.placed(query, step.position), self.kernel.placed(key, step.position)
        cache[:, :, step.newest] = _by_sentence(torch.cat([key, value], 2), A)
        if self.kernel.window != -1:
            return self.output(self._over_gathered(query, step, cache).flatten(1))
        keys, values = cache.narrow(2, 0, C).tensor_split((self.d_k,), 3)
        return self.output(_by_row(self.attend(_by_sentence(query, A), keys, values, step.mask)))

    def over_source(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Attention of `x` [N, d_model] to keys and values `memory` [A, H, S, d_k + d_v], by a mask as in `Attend`."""
        (query,) = self.heads(x, "q")
        keys, values = memory.tensor_split((self.d_k,), 3)
        return self.output(_by_row(self.attend(_by_sentence(query, len(memory)), keys, values, mask)))

    def _over_gathered(self, query: Tensor, step: Step, cache: Tensor) -> Tensor:
        """[N, H, d_k] -> [N, H, d_v] by the kernel, which gets the past of each hypothesis as a sequence."""
        A, W, T = step.own.shape
        H = cache.size(1)
        index = step.own.view(A, 1, W * T, 1).expand(A, H, W * T, cache.size(3))
        past = cache.gather(2, index).view(A, H, W, T, -1).transpose(1, 2).flatten(0, 1)  # [N, H, T, d_k + d_v]
        mask = AttentionMask(causal=True, offset=T - 1)
        heads: Tensor = self.kernel(query[:, :, None], past[..., : self.d_k], past[..., self.d_k :], mask)
        return heads[:, :, 0]


class FrozenFeedForward:
    """`FeedForward` with frozen products, of which the first has the activation in it."""

    def __init__(self, layer: FeedForward, dtype: str) -> None:
        self.inner = frozen_linear(layer.inner.weight, layer.inner.bias, dtype, layer.activation)
        self.factor = None if layer.factor is None else frozen_linear(layer.factor.weight, dtype=dtype)
        self.outer = frozen_linear(layer.outer.weight, layer.outer.bias, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """[N, d_model] -> [N, d_model]."""
        inner = self.inner(x)
        return self.outer(inner if self.factor is None else inner * self.factor(x))


class FrozenResidual:
    """`Residual` without dropout."""

    def __init__(self, around: Residual) -> None:
        norm = around.norm
        self.norm = partial(
            torch.layer_norm, normalized_shape=norm.normalized_shape, weight=norm.weight, bias=norm.bias, eps=norm.eps
        )
        self.pre_norm = around.pre_norm

    def __call__(self, x: Tensor, sublayer: Callable[..., Tensor], *others: Any) -> Tensor:
        """See `Residual`; the sub-layer gets the `others`, too."""
        if self.pre_norm:
            return x + sublayer(self.norm(x), *others)
        return self.norm(x + sublayer(x, *others))


class FrozenEncoderLayer:
    """`EncoderLayer` for decoding."""

    def __init__(self, layer: EncoderLayer, dtype: str, attend: Attend) -> None:
        self.self_attention = FrozenAttention(layer.self_attention, dtype, attend)
        self.feed_forward = _frozen_feed_forward(layer.feed_forward, dtype)
        self.around_self_attention = FrozenResidual(layer.around_self_attention)
        self.around_feed_forward = FrozenResidual(layer.around_feed_forward)

    def __call__(self, x: Tensor, own: Layout) -> Tensor:
        """See `EncoderLayer`."""
        x = self.around_self_attention(x, self.self_attention.encoded, own)
        return self.around_feed_forward(x, self.feed_forward)


class FrozenDecoderLayer:
    """`DecoderLayer` for one position."""

    def __init__(self, layer: DecoderLayer, dtype: str, attend: Attend) -> None:
        self.self_attention = FrozenAttention(layer.self_attention, dtype, attend)
        self.cross_attention = FrozenAttention(layer.cross_attention, dtype, attend)
        self.feed_forward = _frozen_feed_forward(layer.feed_forward, dtype)
        self.around_self_attention = FrozenResidual(layer.around_self_attention)
        self.around_cross_attention = FrozenResidual(layer.around_cross_attention)
        self.around_feed_forward = FrozenResidual(layer.around_feed_forward)

    def __call__(self, x: Tensor, step: Step, cache: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """[N, d_model] -> [N, d_model]; see `FrozenAttention.over_past` and `over_source`."""
        x = self.around_self_attention(x, self.self_attention.over_past, step, cache)
        x = self.around_cross_attention(x, self.cross_attention.over_source, memory, source_mask)
        return self.around_feed_forward(x, self.feed_forward)


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
            self.source = [cache[:kept] for cache in self.source]
            self.target = [cache[:kept] for cache in self.target]
            self.source_mask = None if self.source_mask is None else self.source_mask[:kept]


class FrozenTransformer:
    """A `Decodable` with the weights that `model` has now.

    Args:
        dtype: of the matrix products with weights, float32, bfloat16 or int8.
        attend: the function that computes attention to caches.
        activations: the type of all else, but the log-probabilities are float32.

    Raises:
        UsageError: the device has no products of this `dtype`.
    """

    def __init__(
        self,
        model: Transformer,
        dtype: str = "float32",
        attend: Attend = attend_in_products,
        activations: torch.dtype = torch.float32,
    ) -> None:
        self.vocabulary_size = model.vocabulary_size
        full = all(layer.self_attention.kernel.window == -1 for layer in model.decoder)
        self.has_constant_shapes = full and all_frozen(model)  # steps can have, without host waits
        self._output = frozen_linear(model.output_weight, model.output_bias, dtype)
        self._model = _evaluated(model, activations)
        self._encoder = [FrozenEncoderLayer(layer, dtype, attend) for layer in self._model.encoder]
        self._decoder = [FrozenDecoderLayer(layer, dtype, attend) for layer in self._model.decoder]

    @torch.no_grad()
    def start(self, source: Tensor) -> TransformerState:
        """Encode `source` [B, S], and compute the keys and values of every decoder layer."""
        sources = Packing.of(self._model.real(source), multiple=1)
        memory = self._encoded(source, sources)
        heads = (layer.cross_attention.heads(memory, "kv") for layer in self._decoder)
        caches = [sources.unpack(torch.cat(pair, 2)).transpose(1, 2).contiguous() for pair in heads]
        B, H, _, width = caches[0].shape
        padding = sources.padding()
        mask = caches[0].new_zeros(padding.shape).masked_fill_(padding, -torch.inf)
        source_mask = None if sources.full else mask[:, None, None].repeat(1, H, 1, 1)
        target = [cache.new_empty(B, H, FIRST_COLUMNS, width) for cache in caches]
        return TransformerState(caches, source_mask, target, mask.new_empty(B, 1, 0), mask.new_zeros(1, 1))

    @torch.no_grad()
    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, TransformerState]:
        """See `Decodable`."""
        model = self._model
        encoding, step = state.extend(model.target_positions)
        x = model.target_embedding(tokens) + encoding
        source_mask = x.new_zeros(1, 1, 1) if state.source_mask is None else state.source_mask.flatten(0, 1)
        for layer, memory, cache in zip(self._decoder, state.source, state.target, strict=True):
            x = layer(x, step, cache, memory, source_mask)
        logits = self._output(model.decoder_norm(x))
        if logits.dtype != torch.float32:
            return torch.log_softmax(logits, dim=1, dtype=torch.float32), state
        return torch.log_softmax(logits, dim=1, out=logits), state  # in place: twice as fast where V is large

    def encodings(self, positions: int) -> Tensor:
        """The encodings of the first target positions: [positions, d_model]."""
        return self._model.target_positions(0, positions)

    def _encoded(self, source: Tensor, sources: Packing) -> Tensor:
        """The encoder output [N, d_model] of the rows of `source` [B, S]."""
        model, layout = self._model, layout_of(sources, sources)
        x = embedded(model, model.source_embedding, model.source_positions, source, sources)
        for layer in self._encoder:
            x = layer(x, layout)
        return model.encoder_norm(x)


def takes(model: Any) -> TypeGuard[Transformer]:
    """Return whether a `FrozenTransformer` computes what this model does.

    A feed-forward layer of another class than `FeedForward` is used as it is.
    """
    names = ("decodable", "start", "step", "encode", "embed")
    if any(getattr(type(model), name, None) is not getattr(Transformer, name) for name in names):
        return False
    known = {EncoderLayer, DecoderLayer, MultiHeadAttention, Residual}
    layers = [*model.encoder, *model.decoder]
    parts = [part for layer in layers for part in layer.children() if part is not layer.feed_forward]
    return known.issuperset(map(class_of, layers + parts))


def all_frozen(model: Transformer) -> bool:
    """Return whether all layers of the decoder have frozen products."""
    return all(class_of(layer.feed_forward) is FeedForward for layer in model.decoder)


def _evaluated(model: Transformer, activations: torch.dtype) -> Transformer:
    """Return a copy in evaluation mode that shares its weights, or has them in the type of `activations`."""
    types = {torch.float32: activations}
    tensors = (*model.parameters(), *model.buffers())
    return deepcopy(model, {id(tensor): tensor.to(types.get(tensor.dtype)) for tensor in tensors}).eval()


def _frozen_feed_forward(layer: Any, dtype: str) -> Callable[[Tensor], Tensor]:
    """Return a feed-forward layer for decoding. One of another class may have a method `freeze(dtype)`."""
    if class_of(layer) is FeedForward:
        return FrozenFeedForward(layer, dtype)
    if hasattr(layer, "freeze"):
        layer.freeze(dtype)
    return layer


def _with_columns(cache: Tensor, columns: Tensor, capacity: int) -> Tensor:
    """Return a copy of `cache` with `columns` [A, C] of each sentence, and room for `capacity` columns."""
    A, H, old, width = cache.shape
    rows = torch.arange(A * H, device=cache.device).view(A, H, 1) * old + columns[:, None]  # [A, H, C]
    copy = cache.new_empty(A, H, capacity, width)
    copy[:, :, : columns.size(1)] = cache.flatten(0, 2).index_select(0, rows.flatten()).view(*rows.shape, width)
    return copy


def _by_sentence(rows: Tensor, sentences: int) -> Tensor:
    """[N, H, width] -> [A, H, W, width]."""
    N, H, width = rows.shape
    return rows.view(sentences, N // sentences, H, width).transpose(1, 2)


def _by_row(heads: Tensor) -> Tensor:
    """[A, H, W, width] -> [N, H * width]."""
    return heads.transpose(1, 2).flatten(2).flatten(0, 1)
