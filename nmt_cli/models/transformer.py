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

    def forward(self, x: Tensor, own: Layout) -> Tensor:
        """[B, S, d_model] -> [B, S, d_model]; `own` is the mask of the source, or another layout."""
        x = self.around_self_attention(x, lambda y: self.self_attention(y, y, own))
        return self.around_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder output, a feed-forward network (section
    3.1, Decoder).
    """

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
        self, x: Tensor, memory: Tensor | Sequence[Tensor], own: Layout, across: Layout
    ) -> Tensor:
        """[B, T, d_model] -> [B, T, d_model]; `own` is the mask of the target, `across` from the
        target to the source.

        The memory is the encoder output [B, S, d_model], or the keys and values that
        `cross_attention` made of it.
        """
        x = self.around_self_attention(x, lambda y: self.self_attention(y, y, own))
        x = self.around_cross_attention(x, lambda y: self.cross_attention(y, memory, across))
        return self.around_feed_forward(x, self.feed_forward)


class Stack(nn.ModuleList):
    """The layers of the encoder or the decoder."""

    recompute = False  # whether the backward pass computes activations again, with the same dropout

    def forward(self, x: Tensor, *others: Any) -> Tensor:
        """[B, T, d_model] -> [B, T, d_model]; the layers get the `others`, too."""
        for layer in self:
            again = self.recompute and torch.is_grad_enabled()
            x = checkpoint(layer, x, *others, use_reentrant=False) if again else layer(x, *others)
        return x


class Transformer(Model):
    """The encoder-decoder of Figure 1.

    Args:
        config: size and regularisation.
        attention: configuration of the kernel of both self-attentions; attention over the source is
            always full.
        source_vocabulary_size, target_vocabulary_size: V of each side.
        shared_vocabulary: one matrix for source, target and pre-softmax (section 3.4), or the
            source has its own.
    """

    # Whether layers compute each position alone, but for attention, so that padding changes
    # nothing.
    independent = True

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
        self.config, self.attention = config, attention
        self.vocabulary_size = target_vocabulary_size
        self.target_embedding = Embedding(target_vocabulary_size, config.d_model)
        self.source_embedding = (
            self.target_embedding
            if shared_vocabulary
            else Embedding(source_vocabulary_size, config.d_model)
        )
        self.source_positions, self.target_positions = (
            positional_encoding(config.positions, config.d_model, config.max_positions)
            for _ in range(2)
        )
        if config.output_bias:
            self.output_bias = nn.Parameter(torch.zeros(target_vocabulary_size))
        self.dropout = Dropout(config.dropout)

        def layers(kind: type[nn.Module], count: int) -> Any:
            d_k, d_v = config.head_widths()
            kernels = (
                build(attention, dropout=config.attention_dropout, d_k=d_k, d_v=d_v)
                for _ in range(count)
            )
            return Stack(kind(config, kernel) for kernel in kernels)

        self.encoder = layers(EncoderLayer, config.num_layers)
        self.decoder = layers(DecoderLayer, config.decoder_layers)
        pre_norm = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()
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
        """The hidden states [B, T, d_model] of all target positions, which the output weight
        projects to logits.

        Args:
            masks: the class of the masks of attention.
        """
        memory = self.encode(source, masks)
        own, across = masks(causal=True), masks(~self.real(source))
        x = self.embed(self.target_embedding, self.target_positions, target_in)
        return self.decoder_norm(self.decoder(x, memory, own, across))

    def encode(self, source: Tensor, masks: Any = AttentionMask) -> Tensor:
        """The encoder output [B, S, d_model]."""
        x = self.embed(self.source_embedding, self.source_positions, source)
        return self.encoder_norm(self.encoder(x, masks(~self.real(source))))

    def real(self, source: Tensor) -> Tensor:
        """Which tokens of `source` [B, S] the encoder sees."""
        return source != PAD

    def embed(self, embedding: nn.Module, positions: nn.Module, tokens: Tensor) -> Tensor:
        """Sections 3.4, 3.5 and 5.4: dropout over the sum of embeddings and positional encodings:
        [B, T, d_model].
        """
        return self.dropout(embedding(tokens) + positions(0, tokens.size(1)))

    def stacks(self) -> list[nn.Module]:
        """See `Model`."""
        return [self.encoder, self.decoder]

    def start(self, source: Tensor) -> TensorState:
        """See `Model`: the state has the keys and values of all layers, of the source and of the
        target so far.
        """
        memory, heads = self.encode(source), []
        for layer in self.decoder:
            key, value = layer.cross_attention.heads(memory, "kv")
            heads += [key.transpose(1, 2), value.transpose(1, 2)]  # [B, H, S, d_k], [B, H, S, d_v]
        return TensorState((~self.real(source), *heads), tuple(part[:, :, :0] for part in heads))

    def step(self, tokens: Tensor, state: TensorState) -> tuple[Tensor, TensorState]:
        """See `Model`: one position of the decoder, which attends to the keys and values of all
        positions so far.
        """
        # [A, S], and of each layer [A, H, S, d_k] and [A, H, S, d_v]
        padding, *heads = state.source
        across, target_part = ToSource(AttentionMask(padding)), list[Tensor]()
        x = self.target_embedding(tokens) + self.target_positions(state.length, 1)
        for number, layer in enumerate(self.decoder):
            of_layer = slice(2 * number, 2 * number + 2)
            past = Past(*state.target[of_layer])
            x = layer(x, heads[of_layer], past, across)
            target_part += [past.key, past.value]
        logits = F.linear(self.decoder_norm(x), self.output_weight, self.output_bias)
        return logits, TensorState(state.source, tuple(target_part), state.length + 1)

    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """See `Model`."""
        recorded: list[Recorded] = []

        def masks(*arguments: Any, **keywords: Any) -> Recorded:
            recorded.append(Recorded(*arguments, **keywords))
            return recorded[-1]

        with torch.inference_mode():
            self.decoder_output(source, target_in, masks)
        names = ("encoder", "decoder", "cross")  # the order in which `decoder_output` makes them
        return {
            name: torch.stack(mask.weights, dim=1)
            for name, mask in zip(names, recorded, strict=True)
        }

    def training_flops(self, source_lengths: Lengths, target_lengths: Lengths) -> dict[str, float]:
        """See `Model`."""
        kernel = self.encoder[0].self_attention.kernel
        return training_flops(
            self.config, kernel, self.vocabulary_size, source_lengths, target_lengths
        )

    def _initialise(self) -> None:
        """Initialise attention and feed-forward layers; the paper does not say how."""
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                # Glorot's uniform, with queries, keys and values as one matrix.
                for projection in (module.w_q, module.w_k, module.w_v):
                    nn.init.xavier_uniform_(projection.weight, gain=0.5**0.5)
                nn.init.xavier_uniform_(module.w_o.weight)
                for projection in (module.w_q, module.w_k, module.w_v, module.w_o):
                    if projection.bias is not None:
                        nn.init.zeros_(projection.bias)
            elif isinstance(module, FeedForward):
                # The weights keep PyTorch's uniform(+-1 / sqrt(inputs)). With Glorot's larger ones,
                # a post-norm model at a high learning rate can lose its positions and treat the
                # source as a bag of words.
                for linear in (module.inner, module.outer):
                    if linear.bias is not None:
                        nn.init.zeros_(linear.bias)
            if self.config.zero_sublayers and isinstance(module, (MultiHeadAttention, FeedForward)):
                # The last layer of a residual branch: Zhang et al. 2019, "Fixup Initialization",
                # section 3.
                nn.init.zeros_(
                    (module.w_o if isinstance(module, MultiHeadAttention) else module.outer).weight
                )


def _attention(
    config: TransformerConfig, kernel: Kernel, cross: bool = False
) -> MultiHeadAttention:
    """The attention of a layer, with this kernel."""
    sizes = (config.d_model, config.num_heads, *config.head_widths())
    choices = {"biases": config.attention_biases, "normalised": config.query_key_norm}
    return MultiHeadAttention(*sizes, kernel, **choices, cross=cross)


def _feed_forward(config: TransformerConfig) -> FeedForward:
    """The feed-forward network of a layer."""
    dropout, activation = config.feed_forward_dropout, config.activation
    return FeedForward(config.d_model, config.d_ff, dropout, activation, config.gated_feed_forward)


def _residual(config: TransformerConfig) -> Residual:
    """What is around each sub-layer."""
    return Residual(config.d_model, config.dropout, pre_norm=config.norm == "pre")
