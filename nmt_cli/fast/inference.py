"""Decoding with a Transformer: frozen weights, and cached keys and values.

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

from nmt_cli.fast.exchange import class_of, exchange
from nmt_cli.fast.layout import by_row, by_sentence
from nmt_cli.fast.packing import Packing, map_tensors
from nmt_cli.fast.products import Product, frozen_linear
from nmt_cli.fast.rows import encode
from nmt_cli.layers.attention import AttentionMask, Kernel, Layout, MultiHeadAttention
from nmt_cli.layers.sublayer import FeedForward, Residual
from nmt_cli.models.transformer import DecoderLayer, EncoderLayer, Transformer

FIRST_COLUMNS = 64
"""Columns of a new cache."""


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Equation 1 for keys in any order.

    [A, H, W, d_k], [A, H, S, d_k], [A, H, S, d_v] and a mask [A, 1, W or 1, S] of 0 and -inf, whose
    last dimension is not expanded -> [A, H, W, d_v]. On a CPU, products and a softmax would be
    slower, most of all for few rows.
    """
    return F.scaled_dot_product_attention(query, key, value, mask)


class Step:
    """What all layers need in one step.

    Args:
        columns: 0 where a hypothesis sees a column and -inf elsewhere, [A, W, C]. The columns of
            the newest tokens are included.
        position: of the newest tokens, [1], or [N, 1] if sentences differ.
        newest: the W columns of the newest tokens, or [A, W].
        alone: every hypothesis sees every column.
    """

    def __init__(
        self,
        columns: Tensor,
        position: Tensor,
        newest: slice | Tensor,
        alone: bool = False,
    ) -> None:
        self.columns = columns
        self.position = position
        self.newest = newest
        self.mask = None if alone else columns[:, None]  # [A, 1, W, C]

    @cached_property
    def past(self) -> Tensor:
        """The columns [A, W, T] that each hypothesis sees, in the order of their T positions."""
        A, W, _ = self.columns.shape
        seen = (self.columns == 0).nonzero()  # [A * W * T, 3]: sentence, hypothesis, column
        return seen[:, 2].view(A, W, -1)


@dataclass
class CachedPast:
    """The layout of self-attention in a step: the newest positions attend to their own pasts."""

    step: Step
    cache: Tensor  # keys and values of the layer, [A, H, at least C, d_k + d_v], with the newest

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`: [N, H, d_k], [N, H, d_k] and [N, H, d_v] -> [N, H, d_v]."""
        A, _, C = self.step.columns.shape
        query = kernel.placed(query, self.step.position)
        key = kernel.placed(key, self.step.position)
        self.write(by_sentence(torch.cat([key, value], 2), A))
        if kernel.window != -1:
            return self._over_gathered(kernel, query)
        d_k = query.size(2)
        keys, values = self.cache.narrow(2, 0, C).tensor_split((d_k,), 3)
        return by_row(attend(by_sentence(query, A), keys, values, self.step.mask))

    def write(self, newest: Tensor) -> None:
        """Write the newest keys and values [A, H, W, d_k + d_v] to the cache."""
        self.cache[:, :, self.step.newest] = newest

    def _over_gathered(self, kernel: Kernel, query: Tensor) -> Tensor:
        """[N, H, d_k] -> [N, H, d_v] by the kernel, which gets the past of each as a sequence."""
        A, W, T = self.step.past.shape
        _, H, _, width = self.cache.shape  # d_k + d_v
        index = self.step.past.view(A, 1, W * T, 1).expand(A, H, W * T, width)
        past = self.cache.gather(2, index).view(A, H, W, T, width)
        past = past.transpose(1, 2).flatten(0, 1)  # [N, H, T, d_k + d_v]
        d_k = query.size(2)
        keys, values = past.tensor_split((d_k,), 3)
        mask = AttentionMask(causal=True, offset=T - 1)
        heads: Tensor = kernel(query[:, :, None], keys, values, mask)  # [N, H, 1, d_v]
        return heads[:, :, 0]


@dataclass
class CachedSource:
    """The layout of attention from the newest positions to their sentences in the source."""

    mask: Tensor | None  # as in `attend`

    def attend(self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Layout`: [N, H, d_k], [A, H, S, d_k] and [A, H, S, d_v] -> [N, H, d_v]."""
        A = len(key)
        return by_row(attend(by_sentence(query, A), key, value, self.mask))


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
    FeedForward.forward: FeedForward.forward,  # a device may have another for training
}
"""What is exchanged in the copy of a model that decodes."""


@dataclass
class TransformerState:
    """The state of the decoder between two steps. `select` and the next step use it up."""

    source: list[Tensor]  # of each layer: keys and values [A, H, S, d_k + d_v]
    source_mask: Tensor | None  # [A, 1, 1, S], -inf at padding, or None without padding
    target: list[Tensor]  # of each layer: keys and values [A, H, at least C, d_k + d_v]
    mask: Tensor  # [A, W, C], 0 at the columns of a hypothesis' own past and -inf at the others
    newest: Tensor  # [W, W], the mask of the newest position
    length: int = 0  # target positions so far

    def select(self, rows: Tensor) -> TransformerState:
        """See `DecoderState`."""
        A, W, C = self.mask.shape
        self.mask = self.mask.view(A * W, C)[rows.flatten()].view(*rows.shape, C)
        if A > 1:
            self._keep_sentences(rows[:, 0].div(W, rounding_mode="floor"))
        return self

    def extend(self, positions: Any) -> tuple[Tensor, Step]:
        """Make room for the next position, and return its encoding and the step.

        There is a new column for each hypothesis, which alone sees it.
        """
        A, W, C = self.mask.shape
        if self.target[0].size(2) < C + W:
            self._drop_unseen_columns()
            C = self.mask.size(2)
        if len(self.newest) != W:
            self.newest = self.newest.new_full((W, W), -torch.inf).fill_diagonal_(0.0)
        self.mask = torch.cat([self.mask, self.newest.expand(A, W, W)], dim=2)
        position = self.length
        self.length += 1
        step = Step(
            self.mask,
            position=torch.full((1,), position, device=self.mask.device),
            newest=slice(C, C + W),
            alone=W == 1 and self.length == C + W,
        )
        return positions(position, 1), step

    def to_source(self) -> Layout:
        """The layout of attention to the source, in all layers."""
        return CachedSource(self.source_mask)

    def to_past(self, step: Step, cache: Tensor) -> Layout:
        """The layout of self-attention in a layer with this cache."""
        return CachedPast(step, cache)

    def _drop_unseen_columns(self) -> None:
        """Copy the caches without columns that no hypothesis sees, with room for more."""
        A, W, _ = self.mask.shape
        seen = (self.mask == 0).any(dim=1)  # [A, C]
        C = int(seen.sum(dim=1).max())
        columns = seen.sort(dim=1, descending=True, stable=True).indices[:, :C]  # the seen first
        capacity = max(FIRST_COLUMNS, 2 * (C + W))
        self.target = [_with_columns(cache, columns, capacity) for cache in self.target]
        self.mask = self.mask.gather(2, columns[:, None].expand(A, W, C))

    def _keep_sentences(self, sentences: Tensor) -> None:
        """Keep the caches of `sentences` [A'], in this order, A' at most A."""
        count = len(sentences)
        caches = [*self.source, *self.target]
        if self.source_mask is not None:
            caches.append(self.source_mask)
        # Only those that change place are copied.
        places = (sentences != torch.arange(count, device=sentences.device)).nonzero().flatten()
        if len(places):
            for cache in caches:
                cache[places] = cache[sentences[places]]
        if count < len(caches[0]):
            self.source = [cache[:count] for cache in self.source]
            self.target = [cache[:count] for cache in self.target]
            if self.source_mask is not None:
                self.source_mask = self.source_mask[:count]


def unchanged(x: Tensor) -> Tensor:
    """Return `x`."""
    return x


class FrozenTransformer:
    """A `Decodable` with the weights that `model` has now.

    Args:
        dtype: of the matrix products with weights, float32, bfloat16, float16 or int8.
        activations: the type of all else, but the log-probabilities are float32.

    Raises:
        UsageError: the device has no products of this `dtype`.
    """

    def __init__(
        self,
        model: Transformer,
        dtype: str = "float32",
        activations: torch.dtype = torch.float32,
    ) -> None:
        self.vocabulary_size = model.vocabulary_size
        # Whether steps can have constant shapes, without waits of the host.
        full = all(layer.self_attention.kernel.window == -1 for layer in model.decoder)
        self.has_constant_shapes = full and all_frozen(model)
        self._output = frozen_linear(model.output_weight, model.output_bias, dtype)
        self._model = _evaluated(model, activations)
        self.d_k, _ = self._model.config.head_widths()
        self._cross_attentions = [layer.cross_attention for layer in self._model.decoder]
        for layer in [*self._model.encoder, *self._model.decoder]:
            freeze(layer, dtype)

    @torch.no_grad()
    def start(
        self, source: Tensor, move: Callable[[Tensor], Tensor] = unchanged
    ) -> TransformerState:
        """Encode `source` [B, S], and compute the keys and values of every decoder layer.

        Args:
            move: to the device of the model, for a source on the host.
        """
        sources = map_tensors(Packing.of(self._model.real(source), multiple=1), move)
        memory = encode(self._model, move(source), sources)  # [rows, d_model]
        caches = []
        for attention in self._cross_attentions:
            key_and_value = torch.cat(attention.heads(memory, "kv"), 2)
            caches.append(sources.unpack(key_and_value).transpose(1, 2).contiguous())
        B, H, S, width = caches[0].shape
        source_mask = None
        if not sources.full:
            mask = caches[0].new_zeros(B, S).masked_fill_(sources.padding(), -torch.inf)
            source_mask = mask[:, None, None]  # [B, 1, 1, S]
        return TransformerState(
            source=caches,
            source_mask=source_mask,
            target=[cache.new_empty(B, H, FIRST_COLUMNS, width) for cache in caches],
            mask=caches[0].new_empty(B, 1, 0),
            newest=caches[0].new_zeros(1, 1),
        )

    @torch.no_grad()
    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, TransformerState]:
        """See `Decodable`."""
        logits = self.logits(tokens, state)
        if logits.dtype != torch.float32:
            return torch.log_softmax(logits, dim=1, dtype=torch.float32), state
        # In place: twice as fast where V is large.
        return torch.log_softmax(logits, dim=1, out=logits), state

    @torch.no_grad()
    def logits(self, tokens: Tensor, state: Any) -> Tensor:
        """Do a step. Return logits [N, V] in the type of the activations."""
        model = self._model
        encoding, step = state.extend(model.target_positions)
        x = model.target_embedding(tokens) + encoding  # [N, d_model]
        to_source = state.to_source()
        for layer, memory, cache in zip(model.decoder, state.source, state.target, strict=True):
            to_past = state.to_past(step, cache)
            key_and_value = memory.tensor_split((self.d_k,), 3)
            x = layer.forward(x, key_and_value, to_past, to_source)
        return self._output(model.decoder_norm(x))

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
    for layer in [*model.encoder, *model.decoder]:
        parts = [part for part in layer.children() if part is not layer.feed_forward]
        if not known.issuperset(map(class_of, [layer, *parts])):
            return False
    return True


def all_frozen(model: Transformer) -> bool:
    """Return whether all layers of the decoder have frozen products."""
    return all(class_of(layer.feed_forward) is FeedForward for layer in model.decoder)


def _evaluated(model: Transformer, activations: torch.dtype) -> Transformer:
    """Return a copy in evaluation mode that shares its weights, or has them in another type."""
    tensors = {}  # by the id of a tensor, what takes its place in the copy
    for tensor in (*model.parameters(), *model.buffers()):
        dtype = activations if tensor.dtype == torch.float32 else tensor.dtype
        tensors[id(tensor)] = tensor.to(dtype)
    copy = deepcopy(model, tensors).eval()
    exchange(copy, METHODS)
    return copy


def freeze(layer: Any, dtype: str) -> None:
    """Lay out the weights of a layer's products, and let it call its parts directly.

    A short step is mostly Python, and a call of an `nn.Module` looks for hooks. A feed-forward
    layer of another class than `FeedForward` may have a method `freeze(dtype)`.
    """

    def product(linear: nn.Linear, activation: str = "none") -> Product:
        return frozen_linear(linear.weight, linear.bias, dtype, activation)

    for name, part in layer.named_children():
        kind = class_of(part)
        attributes = vars(part)  # Python finds an attribute before the module of the same name
        if kind is MultiHeadAttention:
            products: dict[str, Product] = {}
            for letters in ("q", "kv") if part.cross else ("qkv",):
                weight, bias = part.stacked(letters)
                products[letters] = frozen_linear(weight, bias, dtype)
            attributes["products"] = products
            attributes["w_o"] = product(part.w_o)
            attributes["kernel"] = part.kernel
        elif kind is FeedForward:
            attributes["inner"] = product(part.inner, part.activation)
            attributes["activate"] = unchanged
            attributes["outer"] = product(part.outer)
            attributes["dropout"] = unchanged
            if part.factor is not None:
                attributes["factor"] = product(part.factor)
        elif kind is Residual:
            attributes["norm"] = partial(
                torch.layer_norm,
                normalized_shape=part.norm.normalized_shape,
                weight=part.norm.weight,
                bias=part.norm.bias,
                eps=part.norm.eps,
            )
        elif hasattr(part, "freeze"):
            part.freeze(dtype)
        vars(layer)[name] = part.forward


def _with_columns(cache: Tensor, columns: Tensor, capacity: int) -> Tensor:
    """Return a copy of `cache` with the `columns` [A, C], and with room for `capacity` columns."""
    A, H, old_capacity, width = cache.shape
    first = torch.arange(A * H, device=cache.device).view(A, H, 1) * old_capacity
    rows = first + columns[:, None]  # [A, H, C]
    seen = cache.flatten(0, 2).index_select(0, rows.flatten())
    copy = cache.new_empty(A, H, capacity, width)
    copy[:, :, : columns.size(1)] = seen.view(*rows.shape, width)
    return copy
