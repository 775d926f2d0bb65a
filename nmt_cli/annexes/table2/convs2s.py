"""ConvS2S: Gehring, Auli, Grangier, Yarats and Dauphin (2017).

"Convolutional Sequence to Sequence Learning". Sections and equations have this paper's numbers.

What the paper leaves open is as in the authors' program:

- Every sum of two terms is multiplied by sqrt(0.5), not only the sum of a residual block.
- A context c of width f is projected to the width of its layer.
- The gradient of the encoder output is divided by twice the number of attentions.

Departures from the paper:

- There is no bias b_o before the softmax.
- m counts the real positions of a sentence, so that padding changes nothing.
- A position past the end of the table has the last embedding.
- The learning rate is not divided when the validation loss stops improving, because schedules are
  functions of the step.

Letters: B sentences, S source length m, T target length, f width of the embeddings (`d_model`), C
and C' channels of a layer's input and output, k width of a kernel, V vocabulary. In a search, A
sentences and N hypotheses.
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
        d = _summed(self.query(h), embedded)  # [N, T, f], equation 1
        queries = d.view(len(memory.keys), -1, d.size(-1))  # [A, Q, f]
        scores = torch.bmm(queries, memory.keys.mT)
        weights = softmax_over_source(scores, memory.padding)
        context = torch.bmm(weights, memory.values)  # [A, Q, f], equation 2
        m = (~memory.padding).sum(1)[:, None, None]
        context = context * m.sqrt()  # m sqrt(1 / m), section 3.4
        return _summed(self.context(context.view(d.shape)), h), weights


class Block(nn.Module):
    """A convolution to values and gates, with a residual connection around it (section 3.2)."""

    kind = Convolution

    def __init__(self, inputs: int, outputs: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        convolution = self.kind(inputs, 2 * outputs, kernel)
        self.convolution: Any = normalised(convolution, gain=4 * (1 - dropout))
        self.residual: nn.Module = nn.Identity()
        if inputs != outputs:
            self.residual = normalised(nn.Linear(inputs, outputs))


class EncoderLayer(Block):
    """Convolution, gated linear unit and residual connection."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, C] -> [B, S, C'], where `x` is zero at padding."""
        h = F.glu(self.convolution(self.dropout(x)))
        return _summed(h, self.residual(x))


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
        """Return the outputs [N, T, C'] for the next inputs `x` [N, T, C], weights and window.

        Args:
            embedded: as in `Attention`.
            window: the inputs before `x`: [N, k - 1, C].
        """
        convolved, window = self.convolution.resume(self.dropout(x), window)
        h, weights = self.attention(F.glu(convolved), embedded, memory)
        return _summed(h, self.residual(x)), weights, window


class ConvS2S(AttentiveEncoderDecoder):
    """The convolutional encoder and decoder of section 3, with weight normalisation (section 4.2).

    Section 3.5 has the initial weights: a gain of 4 where a gate follows, and p = 1 - rate where
    dropout is on the input.
    """

    def __init__(self, config: ConvS2SConfig, **runtime: Any) -> None:
        super().__init__(config.d_model, config.tie_embeddings, **runtime)
        self.config = config
        width = config.d_model
        dropout = config.dropout
        self.source_positions = LearnedPositions(width, config.max_positions)
        self.target_positions = LearnedPositions(width, config.max_positions)
        for embedding in self._embeddings():
            nn.init.normal_(embedding.weight, std=0.1)
        if isinstance(self.output, nn.Linear):
            normalised(self.output, gain=1 - dropout)
        self.dropout = Dropout(dropout)
        encoder, decoder = config.widths()
        # The first layer has as many inputs as outputs.
        self.encoder_in = normalised(nn.Linear(width, encoder[0].channels), gain=1 - dropout)
        self.decoder_in = normalised(nn.Linear(width, decoder[0].channels), gain=1 - dropout)
        self.encoder_out = normalised(nn.Linear(encoder[-1].channels, width))
        self.decoder_out = normalised(nn.Linear(decoder[-1].channels, width))
        self.encoder: Any = nn.ModuleList()
        inputs = encoder[0].channels
        for outputs, kernel in encoder:
            self.encoder.append(EncoderLayer(inputs, outputs, kernel, dropout))
            inputs = outputs
        self.decoder: Any = nn.ModuleList()
        inputs = decoder[0].channels
        for outputs, kernel in decoder:
            self.decoder.append(DecoderLayer(inputs, outputs, kernel, dropout, width))
            inputs = outputs

    def parts(self) -> dict[str, list[Any]]:
        return {
            "embeddings": self._embeddings(),
            "encoder": [self.encoder_in, self.encoder, self.encoder_out],
            "decoder": [self.decoder_in, self.decoder, self.decoder_out],
        }

    def _embeddings(self) -> list[Any]:
        words = super().parts()["embeddings"]
        return [*words, self.source_positions, self.target_positions]

    def start(self, source: Tensor) -> TensorState:
        """See `EncoderDecoder`. The target part of the state is the window of each layer."""
        padding = source == PAD
        positions = self.source_positions(0, source.size(1))
        embedded = self.dropout(self.source_embedding(source) + positions)  # [B, S, f]
        x = self.encoder_in(embedded)
        for layer in self.encoder:
            x = layer(x.masked_fill(padding[:, :, None], 0.0))
        keys = self.encoder_out(x)  # [B, S, f]
        if keys.requires_grad:  # the end of section 3.4
            keys.register_hook(lambda gradient: gradient / (2 * len(self.decoder)))
        memory = Memory(_summed(keys, embedded), keys, padding)
        windows = [layer.convolution.zeros(keys) for layer in self.decoder]
        return TensorState(memory, tuple(windows))

    def decode(self, target_in: Tensor, state: TensorState) -> Decoded:
        memory = Memory(*state.source)
        weights, windows = [], []
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
        attention = pairs * 2 * self.config.d_model * len(self.decoder)
        return super().products(S, T, pairs) | {"attention": attention}


def _summed(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two terms of equal variance, with the same variance (section 3.4)."""
    return (a + b) * math.sqrt(0.5)
