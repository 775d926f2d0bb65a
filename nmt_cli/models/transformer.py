"""The Transformer (section 3): encoder and decoder.

Letters: B sentences, S source length, T target length, V vocabulary, H heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt_cli.interfaces import PAD
from nmt_cli.layers.attention import (
    AttentionMask,
    FullAttention,
    Kernel,
    Layout,
    MultiHeadAttention,
    Recorded,
)
from nmt_cli.layers.dropout import Dropout
from nmt_cli.layers.embedding import Embedding, positional_encoding
from nmt_cli.layers.layout import Past, ToSource
from nmt_cli.layers.sublayer import FeedForward, Residual
from nmt_cli.model import Model, TensorState
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.models.transformer_flops import training_flops
from nmt_cli.registry import build

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network (section 3.1, Encoder)."""

    def __init__(self, config: TransformerConfig, kernel: Kernel) -> None:
        super().__init__()
        self.self_attention = _attention(config, kernel)
        self.feed_forward = _feed_forward(config)
        self.around_self_attention = _residual(config)
        self.around_feed_forward = _residual(config)

    def forward(self, x: Tensor, mask: Layout) -> Tensor:
        """[B, S, d_model] -> [B, S, d_model]."""
        x = self.around_self_attention(x, lambda y: self.self_attention(y, y, mask))
        return self.around_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention and a feed-forward network (section 3.1, Decoder)."""

    def __init__(self, config: TransformerConfig, kernel: Kernel) -> None:
        super().__init__()
        self.self_attention = _attention(config, kernel)
        self.cross_attention = _attention(
            config, FullAttention(dropout=config.attention_dropout), cross=True
        )
        self.feed_forward = _feed_forward(config)
        self.around_self_attention = _residual(config)
        self.around_cross_attention = _residual(config)
        self.around_feed_forward = _residual(config)

    def forward(
        self, x: Tensor, memory: Tensor | Sequence[Tensor], mask: Layout, cross_mask: Layout
    ) -> Tensor:
        """[B, T, d_model] -> [B, T, d_model].

        Args:
            memory: the encoder output [B, S, d_model], or the keys and values that
                `cross_attention` made of it.
        """
        x = self.around_self_attention(x, lambda y: self.self_attention(y, y, mask))
        x = self.around_cross_attention(
            x,
            lambda y: self.cross_attention(y, memory, cross_mask),
        )
        return self.around_feed_forward(x, self.feed_forward)


class Stack(nn.ModuleList):
    """The layers of the encoder or the decoder."""

    recompute = False  # whether the backward pass computes activations again, with the same dropout

    def forward(self, x: Tensor, *others: Any) -> Tensor:
        """[B, T, d_model] -> [B, T, d_model]. All layers get the `others`."""
        recompute = self.recompute and torch.is_grad_enabled()
        for layer in self:
            if recompute:
                x = checkpoint(layer, x, *others, use_reentrant=False)
            else:
                x = layer(x, *others)
        return x


class Transformer(Model):
    """The encoder-decoder of Figure 1.

    Args:
        config: size and regularisation.
        attention: configuration of the kernel of both self-attentions. Attention over the source is
            always full.
        source_vocabulary_size, target_vocabulary_size: V of each side.
        shared_vocabulary: one matrix for source, target and pre-softmax (section 3.4), or the
            source has its own.
    """

    independent = True
    """Whether all but attention computes each position alone, so that padding changes nothing."""

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
        self.attention = attention
        self.vocabulary_size = target_vocabulary_size
        self.target_embedding = Embedding(target_vocabulary_size, config.d_model)
        if shared_vocabulary:
            self.source_embedding = self.target_embedding
        else:
            self.source_embedding = Embedding(source_vocabulary_size, config.d_model)
        self.source_positions = _positions(config)
        self.target_positions = _positions(config)
        if config.output_bias:
            self.output_bias = nn.Parameter(torch.zeros(target_vocabulary_size))
        self.dropout = Dropout(config.dropout)

        d_k, d_v = config.head_widths()

        def new_kernel() -> Any:
            return build(attention, dropout=config.attention_dropout, d_k=d_k, d_v=d_v)

        self.encoder: Any = Stack(
            EncoderLayer(config, new_kernel()) for _ in range(config.num_layers)
        )
        self.decoder: Any = Stack(
            DecoderLayer(config, new_kernel()) for _ in range(config.decoder_layers)
        )
        self.encoder_norm: nn.Module = nn.Identity()
        self.decoder_norm: nn.Module = nn.Identity()
        if config.norm == "pre":  # nothing normalises the sum after the last layer
            self.encoder_norm = nn.LayerNorm(config.d_model)
            self.decoder_norm = nn.LayerNorm(config.d_model)
        self._initialise()

    @property
    def output_weight(self) -> Tensor:
        """The pre-softmax projection [V, d_model], which is the target embedding (section 3.4)."""
        return self.target_embedding.weight

    def parts(self) -> dict[str, list[Any]]:
        """See `Model`."""
        return {
            "embeddings": [
                self.source_embedding,
                self.target_embedding,
                self.source_positions,
                self.target_positions,
            ],
            "encoder": [self.encoder, self.encoder_norm],
            "decoder": [self.decoder, self.decoder_norm],
        }

    def decoder_output(
        self, source: Tensor, target_in: Tensor, masks: Any = AttentionMask
    ) -> Tensor:
        """The hidden states [B, T, d_model] of all target positions, which make the logits.

        Args:
            masks: the class of the masks of attention.
        """
        memory = self.encode(source, masks)  # [B, S, d_model]
        mask = masks(causal=True)
        cross_mask = masks(~self.real(source))
        x = self.embed(self.target_embedding, self.target_positions, target_in)
        return self.decoder_norm(self.decoder(x, memory, mask, cross_mask))

    def encode(self, source: Tensor, masks: Any = AttentionMask) -> Tensor:
        """The encoder output [B, S, d_model]."""
        mask = masks(~self.real(source))
        x = self.embed(self.source_embedding, self.source_positions, source)
        return self.encoder_norm(self.encoder(x, mask))

    def real(self, source: Tensor) -> Tensor:
        """Return which tokens of `source` [B, S] are not padding."""
        return source != PAD

    def embed(self, embedding: nn.Module, positions: nn.Module, tokens: Tensor) -> Tensor:
        """Dropout (section 5.4) over embeddings plus positional encodings: [B, T, d_model]."""
        return self.dropout(embedding(tokens) + positions(0, tokens.size(1)))

    def stacks(self) -> list[nn.Module]:
        """See `Model`."""
        return [self.encoder, self.decoder]

    def start(self, source: Tensor) -> TensorState:
        """See `Model`. The state has keys and values of all layers, for source and target."""
        memory = self.encode(source)
        of_source = []
        for layer in self.decoder:
            key, value = layer.cross_attention.heads(memory, "kv")
            of_source.append(key.transpose(1, 2))  # [B, H, S, d_k]
            of_source.append(value.transpose(1, 2))  # [B, H, S, d_v]
        of_target = [part[:, :, :0] for part in of_source]  # no positions yet: [B, H, 0, ...]
        return TensorState((~self.real(source), *of_source), tuple(of_target))

    def step(self, tokens: Tensor, state: TensorState) -> tuple[Tensor, TensorState]:
        """See `Model`. The new position attends to the keys and values of all positions so far."""
        padding, *of_source = state.source  # [A, S], then keys and values of each layer
        to_source = ToSource(AttentionMask(padding))
        of_target = []
        x = self.target_embedding(tokens) + self.target_positions(state.length, 1)  # [N, d_model]
        for number, layer in enumerate(self.decoder):
            key_and_value = slice(2 * number, 2 * number + 2)
            past = Past(*state.target[key_and_value])
            x = layer(x, of_source[key_and_value], past, to_source)
            of_target += [past.key, past.value]
        logits = F.linear(self.decoder_norm(x), self.output_weight, self.output_bias)  # [N, V]
        return logits, TensorState(state.source, tuple(of_target), state.length + 1)

    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """See `Model`."""
        recorded: list[Recorded] = []

        def masks(*arguments: Any, **keywords: Any) -> Recorded:
            recorded.append(Recorded(*arguments, **keywords))
            return recorded[-1]

        with torch.inference_mode():
            self.decoder_output(source, target_in, masks)
        encoder, decoder, cross = recorded  # in the order in which `decoder_output` makes them
        return {
            "encoder": torch.stack(encoder.weights, dim=1),
            "decoder": torch.stack(decoder.weights, dim=1),
            "cross": torch.stack(cross.weights, dim=1),
        }

    def training_flops(self, source_lengths: Lengths, target_lengths: Lengths) -> dict[str, float]:
        """See `Model`."""
        kernel = self.encoder[0].self_attention.kernel
        return training_flops(
            self.config, kernel, self.vocabulary_size, source_lengths, target_lengths
        )

    def _initialise(self) -> None:
        """Initialise attention and feed-forward layers. The paper does not say how."""
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                # Glorot's uniform, with queries, keys and values as one matrix.
                for projection in (module.w_q, module.w_k, module.w_v):
                    nn.init.xavier_uniform_(projection.weight, gain=0.5**0.5)
                nn.init.xavier_uniform_(module.w_o.weight)
                linears = [module.w_q, module.w_k, module.w_v, module.w_o]
                last = module.w_o
            elif isinstance(module, FeedForward):
                # The weights keep PyTorch's uniform(+-1 / sqrt(inputs)). With Glorot's larger ones,
                # a post-norm model at a high learning rate can lose its positions and treat the
                # source as a bag of words.
                linears = [module.inner, module.outer]
                last = module.outer
            else:
                continue
            for linear in linears:
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)
            if self.config.zero_sublayers:
                # The last layer of a residual branch (Zhang et al. 2019, "Fixup Initialization",
                # section 3).
                nn.init.zeros_(last.weight)


def _attention(
    config: TransformerConfig, kernel: Kernel, cross: bool = False
) -> MultiHeadAttention:
    d_k, d_v = config.head_widths()
    return MultiHeadAttention(
        config.d_model,
        config.num_heads,
        d_k,
        d_v,
        kernel,
        biases=config.attention_biases,
        cross=cross,
        normalised=config.query_key_norm,
    )


def _feed_forward(config: TransformerConfig) -> FeedForward:
    return FeedForward(
        config.d_model,
        config.d_ff,
        config.feed_forward_dropout,
        config.activation,
        config.gated_feed_forward,
    )


def _residual(config: TransformerConfig) -> Residual:
    return Residual(config.d_model, config.dropout, pre_norm=config.norm == "pre")


def _positions(config: TransformerConfig) -> nn.Module:
    return positional_encoding(config.positions, config.d_model, config.max_positions)
