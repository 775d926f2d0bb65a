"""Deep-Att: section 3 of Zhou, Cao, Wang, Li and Xu 2016 (TACL 4).

"Deep Recurrent Models with Fast-Forward Connections for Neural Machine Translation". An LSTM layer
is divided in two: the feed-forward computation f = W_f x, which is linear, and the recurrent
computation of h from f and the last h. The next layer reads half of f beside h (equation 5), so
that gradients pass all layers through matrix products only. The encoder has two columns of such
layers, which begin in different directions. Each layer has the other direction than the layer below
it. The decoder attends to both columns from its first layer.

Departures from the paper:

- LSTM cells are PyTorch's: a bias, and no peepholes, which begin at zero in the paper.
- The first target embedding belongs to BOS and is not zero.
- The output layer has no bias.
- Training has one learning rate and no L2 regularisation. The paper has 5e-4 for the recurrent
  weights and 4e-5 for the others, and a strength of 2.

Letters: B and A sentences, N hypotheses, S source length, T target length, d width of an LSTM
layer, d_c of a context.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.annexes.table2.additive_attention import AdditiveAttention, Memory
from nmt_cli.annexes.table2.recurrent import LSTM, states_of_layers
from nmt_cli.annexes.table2.settings import DeepAttConfig
from nmt_cli.interfaces import PAD
from nmt_cli.layers.dropout import Dropout
from nmt_cli.model import TensorState
from nmt_cli.models.encoder_decoder import AttentiveEncoderDecoder, Decoded, elements

INITIAL_DEVIATION = 0.07  # standard deviation of all weights that are not recurrent (section 4.3)


class FastForwardLSTM(LSTM):
    """An LSTM layer whose feed-forward computation can be read, too (equations 3 to 5)."""

    def feed_forward(self, x: Tensor) -> Tensor:
        """f: [..., inputs] -> [..., 4d]."""
        return F.linear(x, self.cells.get_parameter("weight_ih_l0"))

    def half_feed_forward(self, x: Tensor) -> Tensor:
        """Half(f), the cell's input and its input gate: [..., inputs] -> [..., 2d]."""
        input_gate, _, cell_input, _ = self.cells.get_parameter("weight_ih_l0").chunk(4)
        return F.linear(x, torch.cat([cell_input, input_gate]))


class DeepAtt(AttentiveEncoderDecoder):
    """The model of Figure 2."""

    def __init__(self, config: DeepAttConfig, **runtime: Any) -> None:
        super().__init__(
            config.d_model, config.tie_embeddings, d_embedding=config.d_embedding, **runtime
        )
        self.config = config
        self.dropout = Dropout(config.dropout)
        d = config.d_model
        columns = [_layers(config.d_embedding, d, config.num_layers) for _ in range(2)]
        self.columns: Any = nn.ModuleList(columns)
        self.projection = nn.Linear(10 * d, config.d_context, bias=False)  # W_p
        self.attention = AdditiveAttention(d, config.d_context, d)
        self.decoder = _layers(config.d_context + config.d_embedding, d, config.num_decoder_layers)
        # Section 4.3: the recurrent weights are zero, the others normal. The biases are zero, too.
        for name, parameter in self.named_parameters():
            if "weight_hh" in name or "bias" in name:
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=INITIAL_DEVIATION)

    def parts(self) -> dict[str, list[Any]]:
        encoder = [self.columns, self.projection]
        decoder = [self.attention, self.decoder]
        return super().parts() | {"encoder": encoder, "decoder": decoder}

    def start(self, source: Tensor) -> TensorState:
        """The target part of the state is output and cell of each layer, from the bottom up."""
        padding = source == PAD
        embedded = self.source_embedding(source)
        lengths = (~padding).sum(dim=1)
        h_1, f_1 = self._column(self.columns[0], embedded, lengths, backwards=False)
        h_2, f_2 = self._column(self.columns[1], embedded, lengths, backwards=True)
        e = torch.cat([h_1, h_2, f_1, f_2], dim=-1)  # [B, S, 10d], equation 7
        values = self.projection(e)  # [B, S, d_c], W_p e of equation 8
        memory = Memory(values, self.attention.key(values), padding)
        return TensorState(memory, self.decoder[0].zeros(values) * len(self.decoder))

    def decode(self, target_in: Tensor, state: TensorState) -> Decoded:
        """See `EncoderDecoder`. The input of the first layer depends on its last output."""
        memory = Memory(*state.source)
        before = states_of_layers(state.target)
        first_state = before[0]
        inputs, outputs, weights = [], [], []
        for word in self.target_embedding(target_in).unbind(1):  # equations 8 to 10
            context, attended = self.attention.read(first_state.output, memory)
            inputs.append(torch.cat([context, word], dim=-1))
            first_state = self.decoder[0].step(inputs[-1], first_state)
            outputs.append(first_state.output)
            weights.append(attended)
        x = torch.stack(inputs, 1)  # [N, T, d_c + d_embedding]
        h = torch.stack(outputs, 1)  # [N, T, d]
        new_target = [*first_state]
        for (below, layer), layer_state in zip(pairwise(self.decoder), before[1:], strict=True):
            x = self._next_input(below, x, h)
            h, layer_state = layer.resume(x, layer_state)
            new_target += layer_state
        return Decoded(self.dropout(h), [torch.stack(weights, 1)], new_target)

    def products(self, S: float, T: float, pairs: float) -> dict[str, float]:
        """See `EncoderDecoder`. The halves of f, which are computed twice, count once."""
        c = self.config.d_context
        d = self.config.d_model
        keys_and_queries = (S * c + T * d) * d
        scores_and_contexts = pairs * (d + c)
        return {
            "encoder": S * elements(self.columns, self.projection),
            "decoder": T * elements(self.decoder),
            "attention": keys_and_queries + scores_and_contexts,
        }

    def _column(
        self, layers: Sequence[FastForwardLSTM], x: Tensor, lengths: Tensor, *, backwards: bool
    ) -> tuple[Tensor, Tensor]:
        """Return h [B, S, d] and f [B, S, 4d] of the last layer.

        Args:
            backwards: the first layer reads from right to left.
        """
        h = layers[0](x, lengths if backwards else None)
        for below, layer in pairwise(layers):
            backwards = not backwards
            x = self._next_input(below, x, h)
            h = layer(x, lengths if backwards else None)
        return self.dropout(h), layers[-1].feed_forward(x)

    def _next_input(self, layer: FastForwardLSTM, x: Tensor, h: Tensor) -> Tensor:
        """[Half(f), Dr(h)] of `layer` with input `x` and output `h` (equation 5): [..., 3d]."""
        return torch.cat([layer.half_feed_forward(x), self.dropout(h)], dim=-1)


def _layers(inputs: int, d: int, count: int) -> Any:
    """Return LSTM layers. The first has this many `inputs`, the others half of f, and h."""
    layers = [FastForwardLSTM(inputs, d)]
    for _ in range(1, count):
        layers.append(FastForwardLSTM(3 * d, d))
    return nn.ModuleList(layers)
