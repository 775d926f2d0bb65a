"""The Transformer (section 3): encoder, decoder, and the decoder's cached step.

Letters: B sentences, S source length, T target length, V vocabulary, N live hypotheses, H heads, d_model the width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.errors import UsageError
from nmt_cli.interfaces import PAD
from nmt_cli.layers.attention import FullAttention, Kernel, MultiHeadAttention, Places
from nmt_cli.layers.dropout import Dropout
from nmt_cli.layers.embedding import Embedding, LearnedPositions, SinusoidalPositions
from nmt_cli.layers.sublayer import FeedForward, Residual
from nmt_cli.models.transformer_flops import Lengths, Shape, training_flops
from nmt_cli.models.transformer_memory import Keeping, training_memory
from nmt_cli.registry import build, option, register


@dataclass(frozen=True)
class TransformerConfig:
    """The letters of Table 3; the defaults are its base model."""

    num_layers: int = option(6, "N: layers of the encoder, and of the decoder", minimum=1, maximum=1000)
    d_model: int = option(512, "width of the model", minimum=2)
    d_ff: int = option(2048, "width of the feed-forward layer", minimum=1)
    num_heads: int = option(8, "h: attention heads", minimum=1)
    d_k: int | None = option(None, "width of a query and a key [default: d_model / h]", minimum=1)
    d_v: int | None = option(None, "width of a value [default: d_model / h]", minimum=1)
    dropout: float = option(
        0.1, "P_drop, on each sub-layer's output and on embeddings + positions", minimum=0.0, maximum=0.99
    )
    attention_dropout: float = option(
        0.0, "dropout on attention weights (the paper's translation models have none)", minimum=0.0, maximum=0.99
    )
    feed_forward_dropout: float = option(
        0.0, "dropout inside the feed-forward layer (the paper has none)", minimum=0.0, maximum=0.99
    )
    norm: str = option(
        "post",
        "layer normalisation after the residual sum, as in the paper, or before the sub-layer",
        choices=("post", "pre"),
    )
    positions: str = option(
        "sinusoidal",
        "positional encoding: section 3.5, or learned as in Table 3, row E",
        choices=("sinusoidal", "learned"),
    )
    max_positions: int = option(1024, "rows of a learned positional embedding", minimum=1)

    def head_widths(self) -> tuple[int, int]:
        """d_k and d_v.

        Raises:
            UsageError: they are left to d_model / h, and h does not divide d_model.
        """
        if (self.d_k is None or self.d_v is None) and self.d_model % self.num_heads:
            raise UsageError(
                f"--num-heads {self.num_heads} does not divide --d-model {self.d_model}: choose another number of "
                f"heads, or give --d-k and --d-v"
            )
        width = self.d_model // self.num_heads
        return self.d_k or width, self.d_v or width


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network (section 3.1, Encoder)."""

    def __init__(self, config: TransformerConfig, kernel: Kernel) -> None:
        super().__init__()
        pre_norm = config.norm == "pre"
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads, *config.head_widths(), kernel)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.feed_forward_dropout)
        self.around_self_attention = Residual(config.d_model, config.dropout, pre_norm)
        self.around_feed_forward = Residual(config.d_model, config.dropout, pre_norm)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """[B, S, d_model] -> [B, S, d_model]."""
        x = self.around_self_attention(x, lambda y: self.self_attention(y, y, places))
        result: Tensor = self.around_feed_forward(x, self.feed_forward)
        return result


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, a feed-forward network (section 3.1, Decoder)."""

    def __init__(self, config: TransformerConfig, kernel: Kernel) -> None:
        super().__init__()
        pre_norm = config.norm == "pre"
        widths = config.head_widths()
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads, *widths, kernel)
        self.cross_attention = MultiHeadAttention(
            config.d_model, config.num_heads, *widths, FullAttention(dropout=config.attention_dropout)
        )
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.feed_forward_dropout)
        self.around_self_attention = Residual(config.d_model, config.dropout, pre_norm)
        self.around_cross_attention = Residual(config.d_model, config.dropout, pre_norm)
        self.around_feed_forward = Residual(config.d_model, config.dropout, pre_norm)

    def forward(
        self, x: Tensor, self_attention: Callable[[Tensor], Tensor], cross_attention: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """[B, T, d_model] -> [B, T, d_model]; the callers say where keys and values come from: the whole prefix,
        or a cache.
        """
        x = self.around_self_attention(x, self_attention)
        x = self.around_cross_attention(x, cross_attention)
        result: Tensor = self.around_feed_forward(x, self.feed_forward)
        return result


KeysValues = tuple[Tensor, Tensor]  # [N, H, length, d_k] and [N, H, length, d_v]


@dataclass
class TransformerState:
    """The decoder's memory between two steps: N rows, one a live hypothesis."""

    memory: list[KeysValues]  # per layer, of the encoder's output
    padding: Tensor  # [N, S], True where the source is padding
    sentences: Tensor  # [N], the sentence of each row
    length: int = 0  # how many target positions the caches hold
    caches: list[KeysValues] = field(default_factory=list)  # per layer, of the target so far

    def select(self, rows: Tensor) -> TransformerState:
        """See `DecoderState`. The encoder's side is copied only where a row changes its sentence: not when beams
        reorder.
        """
        sentences = self.sentences[rows]
        memory, padding = self.memory, self.padding
        if not torch.equal(sentences, self.sentences):
            memory = [(key[rows], value[rows]) for key, value in memory]
            padding = padding[rows]
        caches = [(key[rows], value[rows]) for key, value in self.caches]
        return TransformerState(memory, padding, sentences, self.length, caches)


@register("model", "transformer", TransformerConfig)
class Transformer(nn.Module):
    """The encoder-decoder of Figure 1.

    Args:
        config: the letters of Table 3.
        attention: configuration of the kernel of both self-attentions; attention over the source is always full.
        source_vocabulary_size, target_vocabulary_size: V of either side.
        shared_vocabulary: one matrix for source, target and pre-softmax (section 3.4); otherwise the source has its
        own.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        attention: Any,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        shared_vocabulary: bool,
    ) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = target_vocabulary_size
        self._shape = Shape(
            *(config.num_layers, config.d_model, config.d_ff, config.num_heads, *config.head_widths()),
            vocabulary_size=target_vocabulary_size,
            neighbourhood=getattr(attention, "neighbourhood", None),
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            feed_forward_dropout=config.feed_forward_dropout,
        )
        self.target_embedding = Embedding(target_vocabulary_size, config.d_model)
        self.source_embedding = (
            self.target_embedding if shared_vocabulary else Embedding(source_vocabulary_size, config.d_model)
        )
        self.source_positions = _positions(config)
        self.target_positions = _positions(config)
        self.dropout = Dropout(config.dropout)

        def kernel() -> Kernel:
            built: Kernel = build(attention, dropout=config.attention_dropout)
            return built

        self.encoder = nn.ModuleList(EncoderLayer(config, kernel()) for _ in range(config.num_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config, kernel()) for _ in range(config.num_layers))
        pre_norm = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()
        self._initialise()

    @property
    def output_weight(self) -> Tensor:
        """The pre-softmax projection [V, d_model]: the target embedding itself (section 3.4)."""
        return self.target_embedding.weight

    def encode(self, source: Tensor) -> Tensor:
        """[B, S] ids -> [B, S, d_model]."""
        places = Places(padding=source == PAD)
        x = self._embed(self.source_embedding, self.source_positions, source, start=0)
        for layer in self.encoder:
            x = layer(x, places)
        result: Tensor = self.encoder_norm(x)
        return result

    def features(self, source: Tensor, target_in: Tensor) -> Tensor:
        """The decoder's output before the projection to the vocabulary: [B, T, d_model]."""
        memory = self.encode(source)
        over_source = Places(padding=source == PAD)
        over_target = Places(causal=True)  # padding stands on the right, where no real position looks
        x = self._embed(self.target_embedding, self.target_positions, target_in, start=0)
        for layer in self._decoder_layers():
            x = layer(
                x,
                lambda y, at=layer.self_attention: at(y, y, over_target),
                lambda y, at=layer.cross_attention: at(y, memory, over_source),
            )
        result: Tensor = self.decoder_norm(x)
        return result

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Logits [B, T, V] of each next token."""
        return F.linear(self.features(source, target_in), self.output_weight)

    def start(self, source: Tensor) -> TransformerState:
        """Encodes `source` [B, S]; keys and values over it are computed once for the whole search."""
        memory = self.encode(source)
        keys_values = []
        for layer in self._decoder_layers():
            key, value = layer.cross_attention.keys_and_values(memory)
            keys_values.append((key.contiguous(), value.contiguous()))  # read at every step
        return TransformerState(keys_values, source == PAD, torch.arange(len(source), device=source.device))

    def step(self, tokens: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """One position: `tokens` [N] are the last ids; log-probabilities [N, V] of the next ones, and the state
        that holds them.
        """
        over_source = Places(padding=state.padding)
        over_target = Places(causal=True, offset=state.length)
        caches: list[KeysValues] = []
        x = self._embed(self.target_embedding, self.target_positions, tokens[:, None], start=state.length)
        for index, layer in enumerate(self._decoder_layers()):

            def attend_to_prefix(y: Tensor, layer: DecoderLayer = layer, index: int = index) -> Tensor:
                cache = _extended(
                    state.caches[index] if state.caches else None, layer.self_attention.keys_and_values(y)
                )
                caches.append(cache)
                return layer.self_attention.attend(y, *cache, over_target)

            def attend_to_source(y: Tensor, layer: DecoderLayer = layer, index: int = index) -> Tensor:
                return layer.cross_attention.attend(y, *state.memory[index], over_source)

            x = layer(x, attend_to_prefix, attend_to_source)
        logits = F.linear(self.decoder_norm(x[:, 0]), self.output_weight)
        advanced = TransformerState(state.memory, state.padding, state.sentences, state.length + 1, caches)
        return logits.float().log_softmax(-1), advanced

    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """What each head of each layer looks at, for one sentence: `source` [1, S] and `target_in` [1, T].

        Returns:
            `encoder` [layers, H, S, S], `decoder` [layers, H, T, T] and `cross` [layers, H, T, S]; rows sum to 1.
        """
        attentions = {
            "encoder": [cast(EncoderLayer, layer).self_attention for layer in self.encoder],
            "decoder": [layer.self_attention for layer in self._decoder_layers()],
            "cross": [layer.cross_attention for layer in self._decoder_layers()],
        }
        every = [attention for group in attentions.values() for attention in group]
        for attention in every:
            attention.recorded = []
        try:
            with torch.inference_mode():
                self.features(source, target_in)
            return {name: torch.cat([w for a in group for w in a.recorded or []]) for name, group in attentions.items()}
        finally:
            for attention in every:
                attention.recorded = None

    def training_flops(self, source_lengths: Lengths, target_lengths: Lengths) -> dict[str, float]:
        """Operations of a forward and a backward pass, by part, for sentence pairs of these lengths: [sentences]."""
        return training_flops(self._shape, source_lengths, target_lengths)

    def training_memory(self, sentences: int, source: int, target: int, *, low: bool, on_gpu: bool) -> dict[str, int]:
        """Bytes that stay of a forward pass until the backward pass, by part.

        Args:
            source, target: tokens that each of the sentences is padded to.
            low: products are in bfloat16.
        """
        return training_memory(self._shape, sentences, source, target, Keeping(low, on_gpu))

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [cast(DecoderLayer, layer) for layer in self.decoder]

    def _embed(self, embedding: nn.Module, positions: nn.Module, tokens: Tensor, start: int) -> Tensor:
        """Section 3.4 and 3.5: dropout over the sum of scaled embeddings and positions (section 5.4)."""
        result: Tensor = self.dropout(embedding(tokens) + positions(start, tokens.size(1)))
        return result

    def _initialise(self) -> None:
        """The paper does not say how. Attention: Glorot's uniform, with queries, keys and values as one matrix.

        The feed-forward layers keep PyTorch's smaller uniform(+-1 / sqrt(inputs)). With larger sub-layers a post-norm
        model that learns fast may drown its positions: every key looks alike, and the source becomes a bag of words.
        """
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                for projection in (module.w_q, module.w_k, module.w_v):
                    nn.init.xavier_uniform_(projection.weight, gain=0.5**0.5)
                nn.init.xavier_uniform_(module.w_o.weight)
            elif isinstance(module, FeedForward):
                nn.init.zeros_(module.inner.bias)
                nn.init.zeros_(module.outer.bias)


def _positions(config: TransformerConfig) -> nn.Module:
    if config.positions == "learned":
        return LearnedPositions(config.d_model, config.max_positions)
    return SinusoidalPositions(config.d_model)


def _extended(cache: KeysValues | None, new: KeysValues) -> KeysValues:
    if cache is None:
        return new
    return torch.cat([cache[0], new[0]], dim=2), torch.cat([cache[1], new[1]], dim=2)
