"""GNMT: Wu et al. 2016, "Google's Neural Machine Translation System", section 3 and Figure 1.

A deep LSTM encoder and a deep LSTM decoder with residual connections, joined by additive attention
from the bottom layer of the decoder to the top layer of the encoder. As equation 4 says, the query
of a position is the output of the bottom layer at the position before. The context goes to "all the
remaining decoder layers" (Figure 1), so the bottom layer does not depend on it, and in training
each layer computes all target positions in one call. The decoder starts from zeros.

Departures from the paper:

- `torch.nn.LSTM` has biases, and a tanh between cell and output gate, which equation 11 lacks.
- Cells, layer outputs and logits are not clipped (equations 10 and 13). The paper clips them for
  integer arithmetic.
- Training is by Adam alone. The paper goes on with SGD.

Letters: A or B sentences, W hypotheses of each, N = A * W, S source length, T target length, d
width of the model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.annexes.table2.additive_attention import AdditiveAttention, Memory
from nmt_cli.annexes.table2.recurrent import LSTM, states_of_layers
from nmt_cli.annexes.table2.settings import GNMTConfig
from nmt_cli.interfaces import PAD
from nmt_cli.layers.dropout import Dropout
from nmt_cli.model import TensorState
from nmt_cli.models.encoder_decoder import AttentiveEncoderDecoder, Decoded, elements


class GNMT(AttentiveEncoderDecoder):
    """The network of Figure 1."""

    def __init__(self, config: GNMTConfig, **vocabularies: Any) -> None:
        super().__init__(config.d_model, config.tie_embeddings, **vocabularies)
        self.config = config
        d = config.d_model
        upper_layers = config.num_layers - 1
        self.from_left = LSTM(d, d)
        self.from_right = LSTM(d, d)
        self.encoder: Any = nn.ModuleList([LSTM(2 * d, d)])  # reads both directions
        for _ in range(1, upper_layers):
            self.encoder.append(LSTM(d, d))
        self.bottom = LSTM(d, d)
        self.attention = AdditiveAttention(d, d, d)
        self.decoder: Any = nn.ModuleList(LSTM(2 * d, d) for _ in range(upper_layers))
        self.dropout = Dropout(config.dropout)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.init_range, config.init_range)

    def parts(self) -> dict[str, list[Any]]:
        encoder = [self.from_left, self.from_right, self.encoder]
        decoder = [self.bottom, self.attention, self.decoder]
        return super().parts() | {"encoder": encoder, "decoder": decoder}

    def start(self, source: Tensor) -> TensorState:
        """The target part of the state is output and cell of each layer, from the bottom up."""
        padding = source == PAD
        x = self.dropout(self.source_embedding(source))
        # The bottom layer is one LSTM from each side (section 3.2).
        from_left = self.from_left(x)
        from_right = self.from_right(x, (~padding).sum(1))
        x = torch.cat([from_left, from_right], -1)  # [B, S, 2d]
        for number, layer in enumerate(self.encoder):
            output = layer(self.dropout(x))
            if number > 0:  # equation 6, for the layers above the two lowest
                output = output + x
            x = output
        memory = Memory(x, self.attention.key(x), padding)  # x_1 ... x_M of section 3
        return TensorState(memory, self.bottom.zeros(x) * self.config.num_layers)

    def decode(self, target_in: Tensor, state: TensorState) -> Decoded:
        before = states_of_layers(state.target)
        x = self.dropout(self.target_embedding(target_in))
        x, bottom_state = self.bottom.resume(x, before[0])  # [N, T, d]
        previous = torch.cat([before[0].output[:, None], x[:, :-1]], 1)  # y_(i-1) of equation 4
        context, weights = self.attention.read(previous, Memory(*state.source))
        new_target = [*bottom_state]
        for number, layer in enumerate(self.decoder):
            inputs = self.dropout(torch.cat([x, context], -1))
            output, layer_state = layer.resume(inputs, before[1 + number])
            if number > 0:
                output = output + x
            x = output
            new_target += layer_state
        return Decoded(self.dropout(x), [weights], new_target)

    def products(self, S: float, T: float, pairs: float) -> dict[str, float]:
        d = self.config.d_model
        keys_and_queries = (S + T) * d * d
        scores_and_contexts = 2 * pairs * d
        return {
            "encoder": S * elements(self.from_left, self.from_right, self.encoder),
            "decoder": T * elements(self.bottom, self.decoder),
            "attention": keys_and_queries + scores_and_contexts,
        }
