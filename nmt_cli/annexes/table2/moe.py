"""MoE: Shazeer et al. 2017, "Outrageously Large Neural Networks", section 5.3 and appendices E and
G.

A small GNMT: three LSTMs in the encoder, two in the decoder. Between the last two of each is a
sparsely gated mixture of feed-forward experts, which a sigmoid follows. All widths are d; an LSTM
has more cells, projected to d. Residual connections go around LSTMs and mixtures, with dropout on
their outputs and on the embeddings. The first LSTM of the decoder receives what it attended to with
its last output, so training computes it step by step.

The paper counts 9 LSTMs in GNMT's encoder: the two directions of its lowest layer, and 7 above. So
here the first two of three are the directions. Their outputs are added: concatenated, they would
need more than the paper's 85 million multiply-adds a step.

Departures from the paper:

- Gating is that of section 2.1, flat and noisy, which the paper uses in its multilingual model. The
  experts of this one were chosen in two levels and by the whole batch (appendices B and F), so that
  each had equally many tokens.
- The output layer has no bias. Where the paper gives no initialisation, it is PyTorch's.
- The learning rate rises to its peak and falls at once (Vaswani et al. 2017); the paper's stays
  there for 8,000 steps.

Letters: A or B sentences, W hypotheses of each, N = A * W, S source length, T target length, Q
queries of a sentence.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.annexes.table2.additive_attention import Memory, SourceAttention
from nmt_cli.annexes.table2.experts import Experts
from nmt_cli.annexes.table2.recurrent import LSTM, unrolled
from nmt_cli.annexes.table2.settings import MoEConfig
from nmt_cli.interfaces import PAD
from nmt_cli.layers.dropout import Dropout
from nmt_cli.model import TensorState
from nmt_cli.models.encoder_decoder import AttentiveEncoderDecoder, Decoded, elements


class Attention(SourceAttention):
    """Appendix G, equation 22: softmax over i of sum_d V_d tanh((x_i U)_d) tanh((y_j W)_d)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.u, self.w = (nn.Linear(d_model, d_model, bias=False) for _ in range(2))
        self.v = nn.Linear(d_model, 1, bias=False)

    def key(self, encoded: Tensor) -> Tensor:
        """The factors of the source x [A, S, d] in the scores: [A, S, d]."""
        return self.v.weight * torch.tanh(self.u(encoded))

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return torch.tanh(self.w(query)) @ keys.mT


class MoE(AttentiveEncoderDecoder):
    """The model of appendix E for one pair of languages."""

    def __init__(self, config: MoEConfig, **vocabularies: Any) -> None:
        super().__init__(config.d_model, config.tie_embeddings, **vocabularies)
        d, hidden = config.d_model, config.d_hidden
        self.config = config
        self.from_left, self.from_right, self.encoder_top = (LSTM(d, d, hidden) for _ in range(3))
        self.decoder_bottom, self.decoder_top = LSTM(2 * d, d, hidden), LSTM(d, d, hidden)
        self.attention = Attention(d)
        self.encoder_experts, self.decoder_experts = (
            Experts(d, config.d_ff, config) for _ in range(2)
        )
        self.dropout = Dropout(config.dropout)
        for embedding in (self.source_embedding, self.target_embedding):
            # PyTorch's would be too large for a tied output layer.
            nn.init.normal_(embedding.weight, std=d**-0.5)

    def parts(self) -> dict[str, list[Any]]:
        encoder = [self.from_left, self.from_right, self.encoder_top, self.encoder_experts]
        decoder = [self.decoder_bottom, self.decoder_top, self.decoder_experts, self.attention]
        return {**super().parts(), "encoder": encoder, "decoder": decoder}

    def start(self, source: Tensor) -> TensorState:
        """See `EncoderDecoder`. The target part is output and cell of the lower LSTM, then of the
        upper one.
        """
        padding = source == PAD
        x = self.dropout(self.source_embedding(source))
        from_right = self.from_right(x, (~padding).sum(1))
        x = x + self.dropout(self.from_left(x)) + self.dropout(from_right)
        x = x + self._mixture(self.encoder_experts, x, ~padding)
        x = x + self.dropout(self.encoder_top(x))
        memory = Memory(x, self.attention.key(x), padding)
        return TensorState(memory, self.decoder_bottom.zeros(x) + self.decoder_top.zeros(x))

    def decode(self, target_in: Tensor, state: TensorState) -> Decoded:
        x = self.dropout(self.target_embedding(target_in))
        step = partial(self._bottom_step, Memory(*state.source))
        bottom, cell, weights = unrolled(step, x, *state.target[:2])
        x = x + self.dropout(bottom)
        x = x + self._mixture(self.decoder_experts, x, target_in != PAD)
        top, *last = self.decoder_top.resume(x, *state.target[2:])
        return Decoded(x + self.dropout(top), [weights], [bottom[:, -1], cell[:, -1], *last])

    def products(self, S: float, T: float, pairs: float) -> dict[str, float]:
        d = self.config.d_model
        return {
            "encoder": S * elements(self.from_left, self.from_right, self.encoder_top),
            "decoder": T * elements(self.decoder_bottom, self.decoder_top),
            "experts": (S + T) * self.encoder_experts.products,
            "attention": ((S + T) * d + pairs * 2) * d,  # a score, and a term of the weighted sum
        }

    def _mixture(self, experts: Experts, x: Tensor, real: Tensor) -> Tensor:
        """The mixture's part of the `real` [B, T] positions of `x` [B, T, d], and something finite
        at padding.
        """
        mixed = torch.zeros_like(x)
        mixed[real] = experts(x[real])
        return self.dropout(mixed.sigmoid())

    def _bottom_step(
        self, memory: Memory, x: Tensor, output: Tensor, cell: Tensor
    ) -> tuple[Tensor, ...]:
        """The lower LSTM's next output and cell, and the attention [N, S], from the input and the
        last ones [N, d].
        """
        context, weights = self.attention.read(output, memory)
        return *self.decoder_bottom.step(torch.cat([x, context], -1), output, cell), weights
