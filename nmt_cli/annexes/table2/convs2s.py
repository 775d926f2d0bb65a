"""ConvS2S: Gehring, Auli, Grangier, Yarats and Dauphin (2017), "Convolutional Sequence to Sequence
Learning".

Section numbers and equations are those of that paper. Letters: B sentences, S source length m, T
target length, f width of the embeddings (`d_model`), C and C' channels of a layer's input and
output, k width of a kernel, V vocabulary; in a search, A sentences and N hypotheses.

As in the authors' program, which the paper leaves open: every sum of two terms is multiplied by
sqrt(0.5) and not only that of a residual block; a context c of width f is projected to the width of
its layer; the gradient of the encoder output is divided by twice the number of attentions.

Departures: there is no bias b_o before the softmax; m counts the real positions of a sentence, so
that padding changes nothing; a position past the last of the table has its embedding; the learning
rate is not divided when the validation loss stops improving, because schedules are functions of the
step.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.annexes.table2.additive_attention import Memory, softmax_over_source
from nmt_cli.annexes.table2.convolution import CausalConvolution, Convolution
from nmt_cli.annexes.table2.settings import ConvS2SConfig
from nmt_cli.annexes.table2.weight_norm import folded, normalised
from nmt_cli.interfaces import PAD
from nmt_cli.layers.dropout import Dropout
from nmt_cli.layers.embedding import LearnedPositions
from nmt_cli.model import PlainDecodable, TensorState
from nmt_cli.models.encoder_decoder import AttentiveEncoderDecoder, Decoded


class Attention(nn.Module):
    """Multi-step attention of one decoder layer (section 3.3)."""

    def __init__(self, channels: int, d_model: int) -> None:
        super().__init__()
        self.query = normalised(nn.Linear(channels, d_model))
        self.context = normalised(nn.Linear(d_model, channels))

    def forward(self, h: Tensor, embedded: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """`h` plus its context, and the weights a [A, Q, S] of the Q positions of each sentence.

        Args:
            h: the layer's state [N, T, C'].
            embedded: g, the embeddings [N, T, f] of the same positions.
        """
        d = _summed(self.query(h), embedded)  # equation 1
        scores = torch.bmm(d.view(len(memory.keys), -1, d.size(-1)), memory.keys.mT)
        weights = softmax_over_source(scores, memory.padding)
        context = torch.bmm(weights, memory.values)  # equation 2
        m = (~memory.padding).sum(1)[:, None, None]
        context = (context * m.sqrt()).view(d.shape)  # m sqrt(1 / m), section 3.4
        return _summed(self.context(context), h), weights


class Block(nn.Module):
    """A convolution whose outputs are values and gates, and a residual connection around it
    (section 3.2).
    """

    kind = Convolution

    def __init__(self, inputs: int, outputs: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.convolution: Any = normalised(
            self.kind(inputs, 2 * outputs, kernel), 4 * (1 - dropout)
        )
        self.residual = (
            nn.Identity() if inputs == outputs else normalised(nn.Linear(inputs, outputs))
        )


class EncoderLayer(Block):
    """Convolution, gated linear unit and residual connection."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, C] -> [B, S, C'], where `x` is zero at padding."""
        return _summed(F.glu(self.convolution(self.dropout(x))), self.residual(x))


class DecoderLayer(Block):
    """The same without later positions, and with attention."""

    kind = CausalConvolution

    def __init__(
        self, inputs: int, outputs: int, kernel: int, dropout: float, d_model: int
    ) -> None:
        super().__init__(inputs, outputs, kernel, dropout)
        self.attention = Attention(outputs, d_model)

    def forward(
        self, x: Tensor, embedded: Tensor, memory: Memory, window: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The next inputs [N, T, C] and the window of those before them -> [N, T, C'], weights, and
        the next window.
        """
        convolved, window = self.convolution.resume(self.dropout(x), window)
        h, weights = self.attention(F.glu(convolved), embedded, memory)
        return _summed(h, self.residual(x)), weights, window


class ConvS2S(AttentiveEncoderDecoder):
    """The convolutional encoder and decoder of section 3, with weight normalisation (section 4.2).

    A gain of 4 and the dropout's p = 1 - rate make the initial weights those of section 3.5.
    """

    def __init__(self, config: ConvS2SConfig, **runtime: Any) -> None:
        super().__init__(config.d_model, config.tie_embeddings, **runtime)
        self.config = config
        width, dropout = config.d_model, config.dropout
        self.source_positions, self.target_positions = (
            LearnedPositions(width, config.max_positions) for _ in range(2)
        )
        for embedding in (
            self.source_embedding,
            self.target_embedding,
            self.source_positions,
            self.target_positions,
        ):
            nn.init.normal_(embedding.weight, std=0.1)
        if isinstance(self.output, nn.Linear):
            normalised(self.output, 1 - dropout)
        self.dropout = Dropout(dropout)
        plans = [_shapes(layers) for layers in config.widths()]
        self.encoder_in, self.decoder_in = (
            normalised(nn.Linear(width, plan[0][0]), 1 - dropout) for plan in plans
        )
        self.encoder_out, self.decoder_out = (
            normalised(nn.Linear(plan[-1][1], width)) for plan in plans
        )
        self.encoder: Any = nn.ModuleList(EncoderLayer(*shape, dropout) for shape in plans[0])
        self.decoder: Any = nn.ModuleList(
            DecoderLayer(*shape, dropout, width) for shape in plans[1]
        )

    def parts(self) -> dict[str, list[Any]]:
        return {
            "embeddings": [
                *super().parts()["embeddings"],
                self.source_positions,
                self.target_positions,
            ],
            "encoder": [self.encoder_in, self.encoder, self.encoder_out],
            "decoder": [self.decoder_in, self.decoder, self.decoder_out],
        }

    def start(self, source: Tensor) -> TensorState:
        """See `EncoderDecoder`. The target part is the last k - 1 inputs of each layer."""
        padding = source == PAD
        embedded = self.dropout(
            self.source_embedding(source) + self.source_positions(0, source.size(1))
        )
        x = self.encoder_in(embedded)
        for layer in self.encoder:
            x = layer(x.masked_fill(padding[:, :, None], 0.0))
        keys = self.encoder_out(x)
        if keys.requires_grad:  # the end of section 3.4
            keys.register_hook(lambda gradient: gradient / (2 * len(self.decoder)))
        memory = Memory(_summed(keys, embedded), keys, padding)
        return TensorState(memory, tuple(layer.convolution.zeros(keys) for layer in self.decoder))

    def decode(self, target_in: Tensor, state: TensorState) -> Decoded:
        memory, weights, windows = Memory(*state.source), [], []
        positions = self.target_positions(state.length, target_in.size(1))
        embedded = self.dropout(self.target_embedding(target_in) + positions)
        x = self.decoder_in(embedded)
        for layer, window in zip(self.decoder, state.target, strict=True):
            x, attended, window = layer(x, embedded, memory, window)
            weights.append(attended)
            windows.append(window)
        return Decoded(self.dropout(self.decoder_out(x)), weights, windows)

    def decodable(self, dtype: str = "float32") -> PlainDecodable:
        return PlainDecodable(folded(self), dtype)

    def products(self, S: float, T: float, pairs: float) -> dict[str, float]:
        return super().products(S, T, pairs) | {
            "attention": pairs * 2 * self.config.d_model * len(self.decoder)
        }


def _summed(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two terms of equal variance, with the same variance (section 3.4)."""
    return (a + b) * math.sqrt(0.5)


def _shapes(layers: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(channels, kernel) of each layer -> (C, C', k); the first has as many inputs as outputs."""
    inputs = [layers[0][0], *(channels for channels, _ in layers)]
    return [
        (before, channels, kernel)
        for before, (channels, kernel) in zip(inputs, layers, strict=False)
    ]
