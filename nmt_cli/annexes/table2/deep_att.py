"""Deep-Att: Zhou, Cao, Wang, Li and Xu 2016, "Deep Recurrent Models with Fast-Forward Connections
for Neural Machine Translation" (TACL 4), section 3.

An LSTM layer is divided in two: the feed-forward computation f = W_f x, which is linear, and the
recurrent computation of h from f and the last h. The next layer reads half of f beside h (equation
5), so that gradients pass all layers through matrix products only. The encoder has two columns of
such layers, each layer in the other direction than the one below it; they begin in different
directions. The decoder attends to both from its first layer.

Departures from the paper:

- LSTM cells are PyTorch's: a bias, and no peepholes, which begin at zero in the paper.
- The first target embedding is that of BOS, not zero.
- The output layer has no bias.
- Training has one learning rate and no L2 regularisation. The paper has 5e-4 for the recurrent
  weights and 4e-5 for the others, and a strength of 2.

Letters: B and A sentences, N hypotheses, S source length, T target length, d width of an LSTM
layer, d_c of a context.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.annexes.table2.additive_attention import AdditiveAttention, Memory
from nmt_cli.annexes.table2.recurrent import LSTM, unrolled
from nmt_cli.annexes.table2.settings import DeepAttConfig
from nmt_cli.interfaces import PAD
from nmt_cli.layers.dropout import Dropout
from nmt_cli.model import TensorState
from nmt_cli.models.encoder_decoder import AttentiveEncoderDecoder, Decoded, elements

INITIAL_DEVIATION = 0.07  # standard deviation of all weights that are not recurrent (section 4.3)


class FastForwardLSTM(LSTM):
    """An LSTM layer whose feed-forward computation can be read, too (equations 3 to 5)."""

    def feed_forward(self, x: Tensor) -> Tensor:
        """f: [..., inputs] -> [..., 4 d]."""
        return F.linear(x, self.cells.get_parameter("weight_ih_l0"))

    def half_feed_forward(self, x: Tensor) -> Tensor:
        """Half(f), the part of the cell's input and of the input gate: [..., inputs] -> [..., 2 d]."""
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
        self.columns: Any = nn.ModuleList(
            _layers(config.d_embedding, d, config.num_layers) for _ in range(2)
        )
        self.projection = nn.Linear(10 * d, config.d_context, bias=False)  # W_p
        self.attention = AdditiveAttention(d, config.d_context, d)
        self.decoder = _layers(config.d_context + config.d_embedding, d, config.num_decoder_layers)
        # Section 4.3: the recurrent weights are zero, the others normal; so are the biases here.
        for name, parameter in self.named_parameters():
            if "weight_hh" in name or "bias" in name:
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=INITIAL_DEVIATION)

    def parts(self) -> dict[str, list[Any]]:
        encoder, decoder = [self.columns, self.projection], [self.attention, self.decoder]
        return {**super().parts(), "encoder": encoder, "decoder": decoder}

    def start(self, source: Tensor) -> TensorState:
        """The target part of the state is output and cell of each layer, from the bottom up."""
        padding = source == PAD
        embedded, lengths = self.source_embedding(source), (~padding).sum(dim=1)
        # Both columns, and W_p e (equations 5, 7 and 8).
        h_1, f_1 = self._column(self.columns[0], embedded, lengths, 0)
        h_2, f_2 = self._column(self.columns[1], embedded, lengths, 1)
        values = self.projection(torch.cat([h_1, h_2, f_1, f_2], dim=-1))
        memory = Memory(values, self.attention.key(values), padding)
        return TensorState(memory, self.decoder[0].zeros(values) * len(self.decoder))

    def decode(self, target_in: Tensor, state: TensorState) -> Decoded:
        """See `EncoderDecoder`. The first layer goes step by step: its input depends on its last
        output.
        """
        first, *upper = zip(state.target[::2], state.target[1::2], strict=True)
        step = partial(self._first_step, Memory(*state.source))
        h, cell, x, weights = unrolled(step, self.target_embedding(target_in), *first)
        after = [h[:, -1], cell[:, -1]]
        for (below, layer), before in zip(pairwise(self.decoder), upper, strict=True):
            x = self._next_input(below, x, h)
            h, *last = layer.resume(x, *before)
            after += last
        return Decoded(self.dropout(h), [weights], after)

    def products(self, S: float, T: float, pairs: float) -> dict[str, float]:
        """See `EncoderDecoder`. The products with half of f, which are computed twice, count once."""
        c, d = self.config.d_context, self.config.d_model
        return {
            "encoder": S * elements(self.columns, self.projection),
            "decoder": T * elements(self.decoder),
            "attention": (S * c + T * d) * d
            + pairs * (d + c),  # a score, and a term of the weighted sum
        }

    def _column(
        self, layers: Sequence[FastForwardLSTM], x: Tensor, lengths: Tensor, backwards: int
    ) -> tuple[Tensor, Tensor]:
        """h [B, S, d] and f [B, S, 4 d] of the last layer; `backwards` is 1 if the first reads from
        right to left.
        """
        h = layers[0](x, lengths if backwards else None)
        for k, (below, layer) in enumerate(pairwise(layers), start=1):
            x = self._next_input(below, x, h)
            h = layer(x, lengths if (k + backwards) % 2 else None)
        return self.dropout(h), layers[-1].feed_forward(x)

    def _next_input(self, layer: FastForwardLSTM, x: Tensor, h: Tensor) -> Tensor:
        """[Half(f), Dr(h)], which the layer above reads, from the input and the output of `layer`
        (equation 5).
        """
        return torch.cat([layer.half_feed_forward(x), self.dropout(h)], dim=-1)

    def _first_step(
        self, memory: Memory, y: Tensor, output: Tensor, cell: Tensor
    ) -> tuple[Tensor, ...]:
        """One position of the first layer (equations 8 to 10), after the word `y`: output, cell,
        input, attention.
        """
        context, weights = self.attention.read(output, memory)
        x = torch.cat([context, y], dim=-1)
        return *self.decoder[0].step(x, output, cell), x, weights


def _layers(inputs: int, d: int, count: int) -> Any:
    """LSTM layers: the first reads `inputs`, the others half of f and h."""
    return nn.ModuleList(FastForwardLSTM(3 * d if k else inputs, d) for k in range(count))
