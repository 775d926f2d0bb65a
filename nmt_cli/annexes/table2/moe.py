"""MoE: Shazeer et al. 2017, "Outrageously Large Neural Networks".

Section 5.3 and appendices E and G. A small GNMT: three LSTMs in the encoder, two in the decoder.
Between the last two of each is a sparsely gated mixture of feed-forward experts, which a sigmoid
follows. All widths are d. An LSTM has more cells, projected to d. Residual connections go around
LSTMs and mixtures, with dropout on their outputs and on the embeddings. The first LSTM of the
decoder receives what it attended to with its last output, so training computes it step by step.

The paper counts 9 LSTMs in GNMT's encoder: the two directions of its lowest layer, and 7 above.
Here the first two of three are the directions. Their outputs are added: concatenated, they would
need more than the paper's 85 million multiply-adds a step.

Departures from the paper:

- Gating is flat and noisy (section 2.1), as in the paper's multilingual model. The paper's model
  for one pair chooses experts in two levels and by the whole batch (appendices B and F), so that
  all experts have equally many tokens.
- The output layer has no bias. Where the paper gives no initialisation, it is PyTorch's.
- The learning rate rises to its peak and falls at once (Vaswani et al. 2017). The paper's rate
  stays at its peak for 8,000 steps.

Letters: A or B sentences, W hypotheses of each, N = A * W, S source length, T target length, Q
queries of a sentence.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.annexes.table2.additive_attention import Memory, SourceAttention
from nmt_cli.annexes.table2.experts import Experts
from nmt_cli.annexes.table2.recurrent import LSTM, states_of_layers
from nmt_cli.annexes.table2.settings import MoEConfig
from nmt_cli.interfaces import PAD
from nmt_cli.layers.dropout import Dropout
from nmt_cli.model import TensorState
from nmt_cli.models.encoder_decoder import AttentiveEncoderDecoder, Decoded, elements


class Attention(SourceAttention):
    """Appendix G, equation 22: softmax over i of sum_d V_d tanh((x_i U)_d) tanh((y_j W)_d)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.u = nn.Linear(d_model, d_model, bias=False)
        self.w = nn.Linear(d_model, d_model, bias=False)
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
        self.config = config
        d = config.d_model
        hidden = config.d_hidden
        self.from_left = LSTM(d, d, hidden)
        self.from_right = LSTM(d, d, hidden)
        self.encoder_top = LSTM(d, d, hidden)
        self.decoder_bottom = LSTM(2 * d, d, hidden)
        self.decoder_top = LSTM(d, d, hidden)
        self.attention = Attention(d)
        self.encoder_experts = Experts(d, config.d_ff, config)
        self.decoder_experts = Experts(d, config.d_ff, config)
        self.dropout = Dropout(config.dropout)
        # PyTorch's embeddings would be too large for a tied output layer.
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=d**-0.5)

    def parts(self) -> dict[str, list[Any]]:
        encoder = [self.from_left, self.from_right, self.encoder_top, self.encoder_experts]
        decoder = [self.decoder_bottom, self.decoder_top, self.decoder_experts, self.attention]
        return super().parts() | {"encoder": encoder, "decoder": decoder}

    def start(self, source: Tensor) -> TensorState:
        """The target part of the state is output and cell of the lower LSTM, then of the upper."""
        padding = source == PAD
        x = self.dropout(self.source_embedding(source))
        from_right = self.from_right(x, (~padding).sum(1))
        x = x + self.dropout(self.from_left(x)) + self.dropout(from_right)  # [B, S, d]
        x = x + self._mixture(self.encoder_experts, x, ~padding)
        x = x + self.dropout(self.encoder_top(x))
        memory = Memory(x, self.attention.key(x), padding)
        return TensorState(memory, self.decoder_bottom.zeros(x) + self.decoder_top.zeros(x))

    def decode(self, target_in: Tensor, state: TensorState) -> Decoded:
        x = self.dropout(self.target_embedding(target_in))
        memory = Memory(*state.source)
        bottom_state, top_state = states_of_layers(state.target)
        outputs, weights = [], []
        for word in x.unbind(1):  # [N, d]
            context, attended = self.attention.read(bottom_state.output, memory)
            inputs = torch.cat([word, context], -1)
            bottom_state = self.decoder_bottom.step(inputs, bottom_state)
            outputs.append(bottom_state.output)
            weights.append(attended)
        x = x + self.dropout(torch.stack(outputs, 1))  # [N, T, d]
        x = x + self._mixture(self.decoder_experts, x, target_in != PAD)
        top, top_state = self.decoder_top.resume(x, top_state)
        hidden = x + self.dropout(top)
        return Decoded(hidden, [torch.stack(weights, 1)], [*bottom_state, *top_state])

    def products(self, S: float, T: float, pairs: float) -> dict[str, float]:
        d = self.config.d_model
        keys_and_queries = (S + T) * d * d
        scores_and_contexts = 2 * pairs * d
        return {
            "encoder": S * elements(self.from_left, self.from_right, self.encoder_top),
            "decoder": T * elements(self.decoder_bottom, self.decoder_top),
            "experts": (S + T) * self.encoder_experts.products,
            "attention": keys_and_queries + scores_and_contexts,
        }

    def _mixture(self, experts: Experts, x: Tensor, real: Tensor) -> Tensor:
        """Return the mixture [B, T, d] of `x` at `real` positions [B, T], finite at padding."""
        mixed = torch.zeros_like(x)
        mixed[real] = experts(x[real])
        return self.dropout(mixed.sigmoid())
