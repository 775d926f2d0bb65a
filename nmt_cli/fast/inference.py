"""Decoding with a Transformer: frozen weights, and one target position at a time with cached keys
and values.

Letters: A sentences, W hypotheses of each, N = A * W rows, S source length, C columns of the cache,
H heads, V vocabulary.

The keys and values of all hypotheses of a sentence lie in one cache, a column for each hypothesis
and position. A hypothesis sees the columns of its own past through a mask. So when the search
reorders the hypotheses, the mask changes and the cache does not. Columns that no hypothesis sees
any more leave it when it is full.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.fast.cpu.attention import softmax_
from nmt_cli.fast.exchange import class_of, exchange
from nmt_cli.fast.layout import by_row, by_sentence
from nmt_cli.fast.packing import Packing
from nmt_cli.fast.products import Product, frozen_linear
from nmt_cli.fast.rows import encode
from nmt_cli.layers.attention import AttentionMask, Kernel, MultiHeadAttention
from nmt_cli.layers.sublayer import FeedForward, Residual
from nmt_cli.models.transformer import DecoderLayer, EncoderLayer, Transformer

FIRST_COLUMNS = 64
"""Columns of a new cache."""

Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Equation 1 for keys in any order.

[A, H, W, d_k], [A, H, S, d_k], [A, H, S, d_v] and a mask [A * H, W, S] of 0 and -inf -> [A, H, W,
d_v].
"""


def attend_in_products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """See `Attention`. On a CPU this is faster than PyTorch's kernel."""
    scores = torch.baddbmm(
        mask, query.flatten(0, 1), key.flatten(0, 1).mT, alpha=query.size(3) ** -0.5
    )
    return torch.bmm(softmax_(scores), value.flatten(0, 1)).view(*query.shape[:3], -1)


def attend_in_one_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """See `Attention`. A single 0 hides nothing. Other masks need a last dimension that is not
    expanded.
    """
    seen = (
        None if mask.numel() == 1 else mask.view(-1, min(query.size(1), len(mask)), *mask.shape[1:])
    )
    return F.scaled_dot_product_attention(query, key, value, seen)


class Step:
    """What all layers need in one step: `columns` [A, W, C] is 0 where a hypothesis sees a column,
    and -inf elsewhere.

    Args:
        columns: of the positions so far, the newest included.
        position: of the newest tokens, [1].
        newest: the W columns of the newest tokens.
        alone: every hypothesis sees every column.
    """

    def __init__(
        self,
        columns: Tensor,
        heads: int,
        position: Tensor,
        newest: slice | Tensor,
        alone: bool = False,
    ) -> None:
        A, W, C = columns.shape
        self.columns, self.position, self.newest = columns, position, newest
        self.mask = (
            columns[:1, :, :1] if alone else columns[:, None].expand(A, heads, W, C).flatten(0, 1)
        )

    @cached_property
    def own(self) -> Tensor:
        """The columns [A, W, length] of each hypothesis' past, in the order of positions."""
        return (self.columns == 0).nonzero()[:, 2].view(*self.columns.shape[:2], -1)


class Past:
    """The layout of self-attention in a step: the newest positions attend to their own pasts, and
    enter the `cache`.

    Args:
        cache: keys and values of the layer, [A, H, at least C, d_k + d_v].
    """

    def __init__(self, step: Step, cache: Tensor, attention: Attention) -> None:
        self.step, self.cache, self.attention = step, cache, attention

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`: [N, H, d_k], [N, H, d_k] and [N, H, d_v] -> [N, H, d_v]."""
        A, _, C = self.step.columns.shape
        query, key = (
            kernel.placed(query, self.step.position),
            kernel.placed(key, self.step.position),
        )
        self.cache[:, :, self.step.newest] = by_sentence(torch.cat([key, value], 2), A)
        if kernel.window != -1:
            return self._over_gathered(kernel, query)
        keys, values = self.cache.narrow(2, 0, C).tensor_split((query.size(2),), 3)
        return by_row(self.attention(by_sentence(query, A), keys, values, self.step.mask))

    def _over_gathered(self, kernel: Kernel, query: Tensor) -> Tensor:
        """[N, H, d_k] -> [N, H, d_v] by the kernel, which gets the past of each hypothesis as a
        sequence.
        """
        A, W, T = self.step.own.shape
        H, both = self.cache.size(1), self.cache.size(3)
        index = self.step.own.view(A, 1, W * T, 1).expand(A, H, W * T, both)
        # [N, H, T, d_k + d_v]
        past = self.cache.gather(2, index).view(A, H, W, T, both).transpose(1, 2).flatten(0, 1)
        keys, values = past.tensor_split((query.size(2),), 3)
        heads: Tensor = kernel(
            query[:, :, None], keys, values, AttentionMask(causal=True, offset=T - 1)
        )
        return heads[:, :, 0]


class ToSource:
    """The layout of attention from the newest positions to the keys and values of their sentences.

    Args:
        mask: as in `Attention`.
    """

    def __init__(self, mask: Tensor, attention: Attention) -> None:
        self.mask, self.attention = mask, attention

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`: [N, H, d_k], [A, H, S, d_k] and [A, H, S, d_v] -> [N, H, d_v]."""
        return by_row(self.attention(by_sentence(query, key.size(0)), key, value, self.mask))


def frozen_heads(self: Any, x: Tensor, letters: str) -> list[Tensor]:
    """See `MultiHeadAttention.heads`."""
    return self.split(self.products[letters](x), letters)


def residual(self: Any, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    """See `Residual`. A call for no dropout would cost time."""
    if self.pre_norm:
        return x + sublayer(self.norm(x))
    return self.norm(x + sublayer(x))


METHODS = {
    MultiHeadAttention.heads: frozen_heads,
    Residual.forward: residual,
    FeedForward.forward: FeedForward.forward,  # in place of that of training
}
"""What is exchanged in the copy of a model that decodes."""


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
        """Make room for the next position: W columns, each seen by its own hypothesis. Return its
        encoding, too.
        """
        A, W, C = self.mask.shape
        if self.target[0].size(2) < C + W:
            seen = (self.mask == 0).any(dim=1)  # [A, C]
            C = int(seen.sum(dim=1).max())
            columns = seen.sort(dim=1, descending=True, stable=True).indices[:, :C]
            self.target = [
                _with_columns(layer, columns, max(FIRST_COLUMNS, 2 * (C + W)))
                for layer in self.target
            ]
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
        """Keep the caches of `sentences` [A'], in this order, A' at most A. Only those that change
        place are copied.
        """
        kept = len(sentences)
        places = (sentences != torch.arange(kept, device=sentences.device)).nonzero().flatten()
        tensors = [
            *self.source,
            *self.target,
            *([] if self.source_mask is None else [self.source_mask]),
        ]
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
        attention: the function that computes attention to caches.
        activations: the type of all else, but the log-probabilities are float32.

    Raises:
        UsageError: the device has no products of this `dtype`.
    """

    def __init__(
        self,
        model: Transformer,
        dtype: str = "float32",
        attention: Attention = attend_in_products,
        activations: torch.dtype = torch.float32,
    ) -> None:
        self.vocabulary_size = model.vocabulary_size
        full = all(layer.self_attention.kernel.window == -1 for layer in model.decoder)
        self.has_constant_shapes = full and all_frozen(model)  # steps can have, without host waits
        self._output = frozen_linear(model.output_weight, model.output_bias, dtype)
        self._model = _evaluated(model, activations)
        self._attention, self._d_k = attention, self._model.config.head_widths()[0]
        self._cross_attentions = [layer.cross_attention for layer in self._model.decoder]
        for layer in [*self._model.encoder, *self._model.decoder]:
            freeze(layer, dtype)

    @torch.no_grad()
    def start(self, source: Tensor) -> TransformerState:
        """Encode `source` [B, S], and compute the keys and values of every decoder layer."""
        sources = Packing.of(self._model.real(source), multiple=1)
        memory = encode(self._model, source, sources)
        heads = (attention.heads(memory, "kv") for attention in self._cross_attentions)
        caches = [sources.unpack(torch.cat(pair, 2)).transpose(1, 2).contiguous() for pair in heads]
        B, H, _, width = caches[0].shape
        padding = sources.padding()
        mask = caches[0].new_zeros(padding.shape).masked_fill_(padding, -torch.inf)
        source_mask = None if sources.full else mask[:, None, None].repeat(1, H, 1, 1)
        target = [cache.new_empty(B, H, FIRST_COLUMNS, width) for cache in caches]
        return TransformerState(
            caches, source_mask, target, mask.new_empty(B, 1, 0), mask.new_zeros(1, 1)
        )

    @torch.no_grad()
    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, TransformerState]:
        """See `Decodable`."""
        model = self._model
        encoding, step = state.extend(model.target_positions)
        x = model.target_embedding(tokens) + encoding
        source_mask = (
            x.new_zeros(1, 1, 1) if state.source_mask is None else state.source_mask.flatten(0, 1)
        )
        across = ToSource(source_mask, self._attention)
        for layer, memory, cache in zip(model.decoder, state.source, state.target, strict=True):
            own = Past(step, cache, self._attention)
            x = layer.forward(x, memory.tensor_split((self._d_k,), 3), own, across)
        logits = self._output(model.decoder_norm(x))
        if logits.dtype != torch.float32:
            return torch.log_softmax(logits, dim=1, dtype=torch.float32), state
        # In place: twice as fast where V is large.
        return torch.log_softmax(logits, dim=1, out=logits), state

    def encodings(self, positions: int) -> Tensor:
        """The encodings of the first target positions: [positions, d_model]."""
        return self._model.target_positions(0, positions)


def takes(model: Any) -> TypeGuard[Transformer]:
    """Return whether a `FrozenTransformer` computes what this model does.

    A feed-forward layer of another class than `FeedForward` is used as it is.
    """
    names = ("decodable", "start", "step", "encode", "embed")
    if any(getattr(type(model), name, None) is not getattr(Transformer, name) for name in names):
        return False
    known = {EncoderLayer, DecoderLayer, MultiHeadAttention, Residual}
    layers = [*model.encoder, *model.decoder]
    parts = [
        part for layer in layers for part in layer.children() if part is not layer.feed_forward
    ]
    return known.issuperset(map(class_of, layers + parts))


def all_frozen(model: Transformer) -> bool:
    """Return whether all layers of the decoder have frozen products."""
    return all(class_of(layer.feed_forward) is FeedForward for layer in model.decoder)


def _evaluated(model: Transformer, activations: torch.dtype) -> Transformer:
    """Return a copy in evaluation mode that shares its weights, or has them in the type of
    `activations`.
    """
    types = {torch.float32: activations}
    tensors = (*model.parameters(), *model.buffers())
    copy = deepcopy(
        model, {id(tensor): tensor.to(types.get(tensor.dtype)) for tensor in tensors}
    ).eval()
    exchange(copy, METHODS)
    return copy


def unchanged(x: Tensor) -> Tensor:
    """Return `x`."""
    return x


def freeze(layer: Any, dtype: str) -> None:
    """Lay out the weights of a layer's products, and let it call its parts directly.

    A short step is mostly Python, and a call of an `nn.Module` looks for hooks. A feed-forward
    layer of another class than `FeedForward` may have a method `freeze(dtype)`.
    """

    def product(linear: nn.Linear, activation: str = "none") -> Product:
        return frozen_linear(linear.weight, linear.bias, dtype, activation)

    for name, part in layer.named_children():
        # An attribute is in place of the module of the same name.
        kind, attributes = (class_of(part), vars(part))
        if kind is MultiHeadAttention:
            attributes.update(products={}, w_o=product(part.w_o), kernel=part.kernel)
            for letters in ("q", "kv") if part.cross else ("qkv",):
                weight, bias = part.stacked(letters)
                part.products[letters] = frozen_linear(weight, bias, dtype)
        elif kind is FeedForward:
            attributes.update(inner=product(part.inner, part.activation), activate=unchanged)
            attributes.update(outer=product(part.outer), dropout=unchanged)
            if part.factor is not None:
                attributes["factor"] = product(part.factor)
        elif kind is Residual:
            norm = part.norm
            norm = partial(
                torch.layer_norm,
                normalized_shape=norm.normalized_shape,
                weight=norm.weight,
                bias=norm.bias,
                eps=norm.eps,
            )
            attributes["norm"] = norm
        elif hasattr(part, "freeze"):
            part.freeze(dtype)
        vars(layer)[name] = part.forward


def _with_columns(cache: Tensor, columns: Tensor, capacity: int) -> Tensor:
    """Return a copy of `cache` with `columns` [A, C] of each sentence, and room for `capacity`
    columns.
    """
    A, H, old, width = cache.shape
    # [A, H, C]
    rows = torch.arange(A * H, device=cache.device).view(A, H, 1) * old + columns[:, None]
    copy = cache.new_empty(A, H, capacity, width)
    copy[:, :, : columns.size(1)] = (
        cache.flatten(0, 2).index_select(0, rows.flatten()).view(*rows.shape, width)
    )
    return copy
