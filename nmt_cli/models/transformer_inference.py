"""Decoding with a Transformer: frozen weights, and one target position at a time with cached keys and values.

Letters: A sentences, W hypotheses of each, N = A * W rows, S source length, C columns of the cache, H heads, V
vocabulary.

The keys and values of all hypotheses of a sentence lie in one cache, a column for each hypothesis and position. A
hypothesis sees the columns of its own past through a mask. So when the search reorders the hypotheses, the mask changes
and the cache does not; columns that no hypothesis sees any more leave it when it is full.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from nmt_cli.device import autocast
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import PAD
from nmt_cli.layers.attention import AttentionMask, FullAttention, MultiHeadAttention
from nmt_cli.layers.experts import Experts
from nmt_cli.layers.frozen import Product, frozen_linear
from nmt_cli.layers.rotary_attention import RotaryAttention, rotated
from nmt_cli.layers.sublayer import FeedForward, Residual

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

    def extend(self) -> None:
        """Make room for the next position: W columns, each seen by its own hypothesis."""
        A, W, C = self.mask.shape
        if self.target[0].size(2) < C + W:
            seen = (self.mask == 0).any(dim=1)  # [A, C]
            C = int(seen.sum(dim=1).max())
            columns = seen.sort(dim=1, descending=True, stable=True).indices[:, :C]
            self.target = [_with_columns(layer, columns, max(FIRST_COLUMNS, 2 * (C + W))) for layer in self.target]
            self.mask = self.mask.gather(2, columns[:, None].expand(A, W, C))
        if len(self.own) != W:
            self.own = torch.full((W, W), -torch.inf, device=self.mask.device).fill_diagonal_(0.0)
        self.mask = torch.cat([self.mask, self.own.expand(A, W, W)], dim=2)
        self.length += 1

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


class TransformerInference:
    """A `Decodable` with the weights of `model`, frozen.

    Args:
        model: a `Transformer`, whose file imports this one.
        dtype: of the matrix products with weights, float32, bfloat16 or int8; all else is float32.
    """

    def __init__(self, model: Any, dtype: str = "float32") -> None:
        self.vocabulary_size = model.vocabulary_size
        self._model = model
        self._encoder = [_EncoderLayer(layer, dtype) for layer in model.encoder]
        self._decoder = [_DecoderLayer(layer, dtype) for layer in model.decoder]
        self._output = frozen_linear(model.output_weight, model.output_bias, dtype)

    @torch.no_grad()
    def start(self, source: Tensor) -> TransformerState:
        """Encode `source` [B, S], and compute the keys and values of every decoder layer."""
        model, (B, S) = self._model, source.shape
        padding = source == PAD
        mask = _source_mask(padding, model.config.num_heads) if padding.any() else None
        x = model.source_embedding(source) + model.source_positions(0, S)
        x = x.view(B * S, -1)
        for layer in self._encoder:
            x = layer(x, padding, mask)
        x = model.encoder_norm(x)
        caches = [layer.source(x, B) for layer in self._decoder]
        target = [each.new_empty(*each.shape[:2], FIRST_COLUMNS, each.size(3)) for each in caches]
        return TransformerState(caches, mask, target, x.new_empty(B, 1, 0), x.new_zeros(1, 1))

    @torch.no_grad()
    def step(self, tokens: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """See `Decodable`."""
        model = self._model
        x = model.target_embedding(tokens) + model.target_positions(state.length, 1)
        state.extend()
        view = _StateView(state)
        for number, layer in enumerate(self._decoder):
            x = layer(x, view, state.source[number], state.target[number])
        logits = self._output(model.decoder_norm(x))
        return torch.log_softmax(logits, dim=1, out=logits), state  # in place: twice as fast where V is large


class _StateView:
    """What all layers need of the state in one step."""

    def __init__(self, state: TransformerState) -> None:
        A, W, self.columns = state.mask.shape
        heads = state.source[0].size(1)
        self.state, self.width = state, W
        self.source_mask = None if state.source_mask is None else state.source_mask.flatten(0, 1)
        alone = W == 1 and self.columns == state.length  # every hypothesis sees every column
        self.position = torch.full((1,), state.length - 1, device=state.mask.device)
        self.target_mask = None if alone else state.mask[:, None].expand(A, heads, W, -1).flatten(0, 1)

    @cached_property
    def own_columns(self) -> Tensor:
        """The columns [A, W, length] of each hypothesis' past, in the order of positions."""
        A, W, _ = self.state.mask.shape
        return (self.state.mask == 0).nonzero()[:, 2].view(A, W, -1)


class _SelfAttention:
    """Self-attention of section 3.2.3, queries, keys and values from one product."""

    def __init__(self, attention: MultiHeadAttention, dtype: str) -> None:
        self.heads, self.d_k, self.kernel = attention.num_heads, attention.d_k, attention.kernel
        self.rotary = type(self.kernel) is RotaryAttention
        self.full = self.rotary or type(self.kernel) is FullAttention  # a subclass may do something else
        self.queries, scale = self.heads * self.d_k, self.d_k**-0.5 if self.full else 1.0

        def queries_keys_values(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return torch.cat([query * scale, _head_by_head(key, value, self.heads)])

        self.project = _projection(attention, queries_keys_values, dtype)
        self.merge = frozen_linear(attention.w_o.weight, attention.w_o.bias, dtype)

    def encode(self, x: Tensor, padding: Tensor, mask: Tensor | None) -> Tensor:
        """All positions [A * S, d_model] of a source with this `padding` [A, S]."""
        query, new = self._projected(x, len(padding), torch.arange(padding.size(1), device=x.device))
        if self.full:
            heads = _attend(query, new, None if mask is None else mask.flatten(0, 1))
        else:
            keys, values = new[..., : self.d_k], new[..., self.d_k :]
            heads = self.kernel(query, keys, values, AttentionMask(padding))
        return self.merge(_rows(heads))

    def step(self, x: Tensor, view: _StateView, cache: Tensor) -> Tensor:
        """The newest position [N, d_model], whose keys and values go to the last columns of `cache`."""
        query, new = self._projected(x, len(cache), view.position)
        cache[:, :, view.columns - view.width : view.columns] = new
        if self.full:
            return self.merge(_rows(_attend(query, cache[:, :, : view.columns], view.target_mask)))
        return self.merge(self._own_past(query, cache, view.own_columns).flatten(1))

    def _own_past(self, query: Tensor, cache: Tensor, columns: Tensor) -> Tensor:
        """Call the kernel with the keys and values of each hypothesis alone: [N, H, d_v]."""
        A, W, T = columns.shape
        index = columns.view(A, 1, W * T, 1).expand(A, self.heads, W * T, cache.size(3))
        past = cache.gather(2, index).view(A, self.heads, W, T, -1).transpose(1, 2).flatten(0, 1)
        single = query.transpose(1, 2).reshape(A * W, self.heads, 1, self.d_k)
        keys, values = past[..., : self.d_k], past[..., self.d_k :]
        return self.kernel(single, keys, values, AttentionMask(causal=True, offset=T - 1))[:, :, 0]

    def _projected(self, x: Tensor, sentences: int, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries [A, H, T, d_k], and keys and values [A, H, T, d_k + d_v], at `positions` [T or 1]."""
        y = self.project(x)
        query, new = (_heads(each, sentences, self.heads) for each in y.tensor_split([self.queries], dim=1))
        if self.rotary:
            query, keys = rotated(query, positions), new[..., : self.d_k]
            keys.copy_(rotated(keys, positions))
        return query, new


class _CrossAttention:
    """Attention over the encoder output, whose keys and values are computed once."""

    def __init__(self, attention: MultiHeadAttention, dtype: str) -> None:
        self.heads = heads = attention.num_heads
        self.query = _projection(attention, lambda query, key, value: query * attention.d_k**-0.5, dtype)
        self.project = _projection(attention, lambda query, key, value: _head_by_head(key, value, heads), dtype)
        self.merge = frozen_linear(attention.w_o.weight, attention.w_o.bias, dtype)

    def source(self, encoder_output: Tensor, sentences: int) -> Tensor:
        """[A * S, d_model] -> keys and values [A, H, S, d_k + d_v]."""
        return _heads(self.project(encoder_output), sentences, self.heads).contiguous()

    def step(self, x: Tensor, cache: Tensor, mask: Tensor | None) -> Tensor:
        """The newest position [N, d_model]."""
        return self.merge(_rows(_attend(_heads(self.query(x), len(cache), self.heads), cache, mask)))


class _EncoderLayer:
    def __init__(self, layer: Any, dtype: str) -> None:
        self.self_attention = _SelfAttention(layer.self_attention, dtype)
        self.feed_forward = _feed_forward(layer.feed_forward, dtype)
        self.around_self_attention = _residual(layer.around_self_attention)
        self.around_feed_forward = _residual(layer.around_feed_forward)

    def __call__(self, x: Tensor, padding: Tensor, mask: Tensor | None) -> Tensor:
        x = self.around_self_attention(x, lambda y: self.self_attention.encode(y, padding, mask))
        return self.around_feed_forward(x, self.feed_forward)


class _DecoderLayer:
    def __init__(self, layer: Any, dtype: str) -> None:
        self.self_attention = _SelfAttention(layer.self_attention, dtype)
        self.cross_attention = _CrossAttention(layer.cross_attention, dtype)
        self.feed_forward = _feed_forward(layer.feed_forward, dtype)
        self.source = self.cross_attention.source
        self.around_self_attention = _residual(layer.around_self_attention)
        self.around_cross_attention = _residual(layer.around_cross_attention)
        self.around_feed_forward = _residual(layer.around_feed_forward)

    def __call__(self, x: Tensor, view: _StateView, source: Tensor, target: Tensor) -> Tensor:
        x = self.around_self_attention(x, lambda y: self.self_attention.step(y, view, target))
        x = self.around_cross_attention(x, lambda y: self.cross_attention.step(y, source, view.source_mask))
        return self.around_feed_forward(x, self.feed_forward)


def _feed_forward(layer: FeedForward | Experts, dtype: str) -> Product:
    if isinstance(layer, Experts):
        return _experts(layer, dtype)
    inner = frozen_linear(layer.inner.weight, layer.inner.bias, dtype, layer.activation)
    outer = frozen_linear(layer.outer.weight, layer.outer.bias, dtype)
    if layer.factor is None:
        return lambda x: outer(inner(x))
    factor = frozen_linear(layer.factor.weight, None, dtype)
    return lambda x: outer(inner(x).mul_(factor(x)))


def _experts(layer: Experts, dtype: str) -> Product:
    if dtype == "int8":
        raise UsageError("--dtype int8: a Transformer with --experts decodes in float32 or bfloat16")

    def mixture(x: Tensor) -> Tensor:
        with autocast(x.device, dtype):
            return layer(x)

    return mixture


def _residual(layer: Residual) -> Callable[[Tensor, Product], Tensor]:
    """`Residual` without dropout."""
    shape, weight, bias, eps = layer.norm.normalized_shape, layer.norm.weight, layer.norm.bias, layer.norm.eps

    def norm(x: Tensor) -> Tensor:
        return torch.layer_norm(x, shape, weight, bias, eps)

    if layer.pre_norm:
        return lambda x, sublayer: x + sublayer(norm(x))
    return lambda x, sublayer: norm(sublayer(x).add_(x))


def _attend(query: Tensor, keys_values: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(Q K^T + mask) V for scaled queries [A, H, T, d_k], a mask that expands to [A * H, T, S]."""
    A, H, T, d_k = query.shape
    query, keys_values = query.reshape(A * H, T, d_k), keys_values.flatten(0, 1)
    transposed_keys = keys_values[:, :, :d_k].mT
    scores = torch.bmm(query, transposed_keys) if mask is None else torch.baddbmm(mask, query, transposed_keys)
    return torch.bmm(scores.softmax(-1), keys_values[:, :, d_k:]).view(A, H, T, -1)


def _projection(attention: MultiHeadAttention, joined: Callable[..., Tensor], dtype: str) -> Product:
    """The product with what `joined` makes of the weights of queries, keys and values; the same of their biases."""
    linears = (attention.w_q, attention.w_k, attention.w_v)
    biases = [linear.bias for linear in linears if linear.bias is not None]
    return frozen_linear(joined(*(linear.weight for linear in linears)), joined(*biases) if biases else None, dtype)


def _head_by_head(keys: Tensor, values: Tensor, heads: int) -> Tensor:
    """Weights [H * d_k, d_model] and [H * d_v, d_model] -> [H * (d_k + d_v), d_model]; biases without d_model."""
    return torch.cat([each.view(heads, -1, *each.shape[1:]) for each in (keys, values)], dim=1).flatten(0, 1)


def _with_columns(cache: Tensor, columns: Tensor, capacity: int) -> Tensor:
    """Return a copy of `cache` with `columns` [A, C] of each sentence, and room for `capacity` columns."""
    A, H, old, width = cache.shape
    rows = torch.arange(A * H, device=cache.device).view(A, H, 1) * old + columns[:, None]  # [A, H, C]
    copy = cache.new_empty(A, H, capacity, width)
    copy[:, :, : columns.size(1)] = cache.flatten(0, 2).index_select(0, rows.flatten()).view(*rows.shape, width)
    return copy


def _heads(projected: Tensor, sentences: int, heads: int) -> Tensor:
    """[A * T, H * width] -> [A, H, T, width]."""
    return projected.view(sentences, -1, heads, projected.size(1) // heads).transpose(1, 2)


def _rows(heads: Tensor) -> Tensor:
    """[A, H, T, width] -> [A * T, H * width]."""
    A, H, T, width = heads.shape
    return heads.transpose(1, 2).reshape(A * T, H * width)


def _source_mask(padding: Tensor, heads: int) -> Tensor:
    """[A, S] -> [A, H, 1, S]."""
    mask = torch.zeros(padding.shape, device=padding.device).masked_fill_(padding, -torch.inf)
    return mask[:, None, None].repeat(1, heads, 1, 1)
