"""GNMT: Wu et al. 2016, "Google's Neural Machine Translation System", section 3 and Figure 1.

A deep LSTM encoder and a deep LSTM decoder with residual connections, joined by additive attention from the bottom
layer of the decoder to the top layer of the encoder. As equation 4 says, the query of a position is the output of the
bottom layer at the position before. The context goes to "all the remaining decoder layers" (Figure 1), so the bottom
layer does not depend on it, and in training each layer computes all target positions in one call. The decoder starts
from zeros.

Departures from the paper:

- `torch.nn.LSTM`: with biases, and with a tanh between cell and output gate, which equation 11 lacks.
- Cells, layer outputs and logits are not clipped (equations 10 and 13); that is for integer arithmetic.
- Training is by Adam alone; the paper goes on with SGD.

Letters: A or B sentences, W hypotheses of each, N = A * W, S source length, T target length, d width of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.interfaces import PAD, with_backward
from nmt_cli.layers.dropout import Dropout
from nmt_cli.registry import option, register
from nmt_cli.table2.additive_attention import AdditiveAttention
from nmt_cli.table2.encoder_decoder import EncoderDecoder, FixedState
from nmt_cli.table2.recurrent import LSTM

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


@dataclass(frozen=True)
class GNMTConfig:
    """Size and regularisation; the defaults are the paper's model for English to German (sections 3 and 8.3)."""

    num_layers: int = option(8, "Layers of the encoder, and of the decoder.", minimum=2, maximum=1000)
    d_model: int = option(1024, "Width of embeddings, layers and attention.", minimum=1)
    dropout: float = option(0.3, "Dropout on the inputs of layers and on the output.", minimum=0.0, maximum=0.99)
    init_range: float = option(0.04, "Weights start uniform between -X and X.", minimum=0.0)
    tie_embeddings: bool = option(False, "Share one matrix among embeddings and output layer.")


@register("model", "gnmt", GNMTConfig)
class GNMT(EncoderDecoder):
    """The network of Figure 1."""

    def __init__(self, config: GNMTConfig, **vocabularies: Any) -> None:
        super().__init__(config.d_model, config.tie_embeddings, **vocabularies)
        d, upper = config.d_model, range(1, config.num_layers)
        self.config = config
        self.from_left, self.from_right = LSTM(d, d), LSTM(d, d)
        self.encoder: Any = nn.ModuleList(LSTM(2 * d if layer == 1 else d, d) for layer in upper)
        self.bottom = LSTM(d, d)
        self.attention = AdditiveAttention(d, d, d)
        self.decoder: Any = nn.ModuleList(LSTM(2 * d, d) for _ in upper)
        self.dropout = Dropout(config.dropout)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.init_range, config.init_range)

    def parts(self) -> dict[str, list[Any]]:
        """See `HasParts`."""
        encoder = [self.from_left, self.from_right, self.encoder]
        return {**super().parts(), "encoder": encoder, "decoder": [self.bottom, self.attention, self.decoder]}

    def decoder_output(self, source: Tensor, target_in: Tensor) -> Tensor:
        """See `EncoderDecoder`."""
        encoded, keys, padding = self._encode(source)
        x, past = self._bottom(target_in)
        context = self.attention(past, keys, padding) @ encoded  # equation 4: [B, T, d]
        for number, layer in enumerate(self.decoder):
            x = _plus_residual(number, layer(self.dropout(torch.cat([x, context], -1))), x)
        return self.dropout(x)

    def start(self, source: Tensor) -> FixedState:
        """See `EncoderDecoder`. The target part is output and cell of each layer, from the bottom up."""
        encoded = self._encode(source)
        return FixedState(encoded, self.bottom.zeros(encoded[0]) * self.config.num_layers)

    def next_output(self, tokens: Tensor, state: FixedState) -> tuple[Tensor, FixedState]:
        """See `EncoderDecoder`."""
        encoded, keys, padding = state.source
        bottom, *upper = zip(state.target[::2], state.target[1::2], strict=True)
        past = bottom[0].view(len(encoded), -1, self.config.d_model)  # [A, W, d]
        context = (self.attention(past, keys, padding) @ encoded).flatten(0, 1)
        x, cell = self.bottom.step(self.target_embedding(tokens), *bottom)
        target = [x, cell]
        for number, (layer, before) in enumerate(zip(self.decoder, upper, strict=True)):
            output, cell = layer.step(torch.cat([x, context], -1), *before)
            target += [output, cell]
            x = _plus_residual(number, output, x)
        return x, FixedState(state.source, tuple(target))

    @torch.inference_mode()
    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """See `ShowsAttention`."""
        _, keys, padding = self._encode(source)
        return {"cross": self.attention(self._bottom(target_in)[1], keys, padding)[None]}

    def training_flops(self, source_lengths: Lengths, target_lengths: Lengths) -> dict[str, float]:
        """See `CountsFlops`. Matrix products only, each with two for its gradients; a multiply-add is two."""
        d, layers = self.config.d_model, self.config.num_layers
        S, T, pairs = (float(each.sum()) for each in (source_lengths, target_lengths, source_lengths * target_lengths))
        products = {  # sizes of the matrices that multiply each position
            "encoder": S * (2 * 8 + 12 + (layers - 2) * 8) * d**2,
            "decoder": T * (8 + (layers - 1) * 12) * d**2,
            "attention": (S + T) * d**2 + pairs * 2 * d,  # a score, and a term of the weighted sum
            "output layer": T * d * self.vocabulary_size,
        }
        return with_backward({part: 2 * count for part, count in products.items()})

    def _encode(self, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x_1 ... x_M of section 3 [B, S, d], their projections for attention [B, S, d], and where `source` is padding.

        The bottom layer is one LSTM from each side (section 3.2).
        """
        padding = source == PAD
        x = self.dropout(self.source_embedding(source))
        x = torch.cat([self.from_left(x), self.from_right(x, (~padding).sum(1))], -1)
        for number, layer in enumerate(self.encoder):
            x = _plus_residual(number, layer(self.dropout(x)), x)
        return x, self.attention.key(x), padding

    def _bottom(self, target_in: Tensor) -> tuple[Tensor, Tensor]:
        """The output of the decoder's bottom layer, and y_(i-1), that of the position before: [B, T, d] each."""
        x = self.bottom(self.dropout(self.target_embedding(target_in)))
        return x, F.pad(x, (0, 0, 1, -1))


def _plus_residual(number: int, output: Tensor, x: Tensor) -> Tensor:
    """Equation 6: `output` plus input `x` of a layer, except of the first one above the bottom, `number` 0."""
    return output + x if number else output
