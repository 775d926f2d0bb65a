"""GNMT: Wu et al. 2016, "Google's Neural Machine Translation System", section 3 and Figure 1.

A deep LSTM encoder and a deep LSTM decoder with residual connections, joined by additive attention
from the bottom layer of the decoder to the top layer of the encoder. As equation 4 says, the query
of a position is the output of the bottom layer at the position before. The context goes to "all the
remaining decoder layers" (Figure 1), so the bottom layer does not depend on it, and in training
each layer computes all target positions in one call. The decoder starts from zeros.

Departures from the paper:

- `torch.nn.LSTM`: with biases, and with a tanh between cell and output gate, which equation 11
  lacks.
- Cells, layer outputs and logits are not clipped (equations 10 and 13); that is for integer
  arithmetic.
- Training is by Adam alone; the paper goes on with SGD.

Letters: A or B sentences, W hypotheses of each, N = A * W, S source length, T target length, d
width of the model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.annexes.table2.additive_attention import AdditiveAttention, Memory
from nmt_cli.annexes.table2.recurrent import LSTM
from nmt_cli.annexes.table2.settings import GNMTConfig
from nmt_cli.interfaces import PAD
from nmt_cli.layers.dropout import Dropout
from nmt_cli.model import TensorState
from nmt_cli.models.encoder_decoder import AttentiveEncoderDecoder, Decoded, elements


class GNMT(AttentiveEncoderDecoder):
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
        encoder = [self.from_left, self.from_right, self.encoder]
        return {
            **super().parts(),
            "encoder": encoder,
            "decoder": [self.bottom, self.attention, self.decoder],
        }

    def start(self, source: Tensor) -> TensorState:
        """The target part of the state is output and cell of each layer, from the bottom up."""
        padding = source == PAD
        x = self.dropout(self.source_embedding(source))
        # x_1 ... x_M of section 3; the bottom layer is one LSTM from each side (section 3.2).
        x = torch.cat([self.from_left(x), self.from_right(x, (~padding).sum(1))], -1)
        for number, layer in enumerate(self.encoder):
            output = layer(self.dropout(x))
            x = output + x if number else output  # equation 6, for the layers above the two lowest
        memory = Memory(x, self.attention.key(x), padding)
        return TensorState(memory, self.bottom.zeros(x) * self.config.num_layers)

    def decode(self, target_in: Tensor, state: TensorState) -> Decoded:
        bottom, *upper = zip(state.target[::2], state.target[1::2], strict=True)
        x, *after = self.bottom.resume(self.dropout(self.target_embedding(target_in)), *bottom)
        past = torch.cat([bottom[0][:, None], x[:, :-1]], 1)  # y_(i-1) of equation 4
        context, weights = self.attention.read(past, Memory(*state.source))
        for number, (layer, before) in enumerate(zip(self.decoder, upper, strict=True)):
            output, *last = layer.resume(self.dropout(torch.cat([x, context], -1)), *before)
            x = output + x if number else output
            after += last
        return Decoded(self.dropout(x), [weights], after)

    def products(self, S: float, T: float, pairs: float) -> dict[str, float]:
        d = self.config.d_model
        return {
            "encoder": S * elements(self.from_left, self.from_right, self.encoder),
            "decoder": T * elements(self.bottom, self.decoder),
            "attention": ((S + T) * d + pairs * 2) * d,  # a score, and a term of the weighted sum
        }
