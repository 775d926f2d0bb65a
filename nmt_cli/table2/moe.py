"""MoE: Shazeer et al. 2017, "Outrageously Large Neural Networks", section 5.3 and appendices E and G.

A small GNMT: three LSTMs in the encoder, two in the decoder. Between the last two of each is a sparsely gated mixture
of feed-forward experts, which a sigmoid follows. All widths are d; an LSTM has more cells, projected to d. Residual
connections go around LSTMs and mixtures, with dropout on their outputs and on the embeddings. The first LSTM of the
decoder receives what it attended to with its last output, so training computes it step by step.

The paper counts 9 LSTMs in GNMT's encoder: the two directions of its lowest layer, and 7 above. So here the first two
of three are the directions. Their outputs are added: concatenated, they would need more than the paper's 85 million
multiply-adds a step.

Departures from the paper:

- Gating is that of section 2.1, flat and noisy, which the paper uses in its multilingual model. The experts of this one
  were chosen in two levels and by the whole batch (appendices B and F), so that each had equally many tokens.
- The output layer has no bias. Where the paper gives no initialisation, it is PyTorch's.
- The learning rate rises to its peak and falls at once (Vaswani et al. 2017); the paper's stays there for 8,000 steps.

Letters: A or B sentences, W hypotheses of each, N = A * W, S source length, T target length, Q queries of a sentence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nmt_cli.errors import UsageError
from nmt_cli.interfaces import PAD, with_backward
from nmt_cli.layers.dropout import Dropout
from nmt_cli.layers.experts import Experts, expert_flops
from nmt_cli.packing import Packing
from nmt_cli.registry import option, register
from nmt_cli.table2.encoder_decoder import EncoderDecoder, FixedState
from nmt_cli.table2.recurrent import LSTM

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


@dataclass(frozen=True)
class MoEConfig:
    """Size and regularisation; the defaults are the paper's largest model (appendix E)."""

    d_model: int = option(512, "Width of embeddings, layers and attention.", minimum=2)
    d_hidden: int = option(2048, "Cells of an LSTM, projected to the width of the model.", minimum=2)
    d_ff: int = option(2048, "Hidden units of an expert.", minimum=1)
    experts: int = option(2048, "Experts in each of the two mixtures.", minimum=2)
    experts_per_token: int = option(4, "Experts that a token is sent to.", minimum=2)
    importance_loss: float = option(0.01, "Weight of the loss that balances the gates of experts.", minimum=0.0)
    load_loss: float = option(0.01, "Weight of the loss that balances the tokens of experts.", minimum=0.0)
    dropout: float = option(0.4, "Dropout on outputs of layers and on embeddings.", minimum=0.0, maximum=0.99)
    tie_embeddings: bool = option(False, "Share one matrix among embeddings and output layer.")

    def __post_init__(self) -> None:
        """Raise UsageError if an LSTM has fewer cells than outputs."""
        if self.d_hidden < self.d_model:
            raise UsageError(f"--d-hidden {self.d_hidden} is below --d-model {self.d_model}; it is at least that")


class Attention(nn.Module):
    """Appendix G, equation 22: softmax over i of sum_d V_d tanh((x_i U)_d) tanh((y_j W)_d)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.u, self.w = (nn.Linear(d_model, d_model, bias=False) for _ in range(2))
        self.v = nn.Linear(d_model, 1, bias=False)

    def keys(self, encoded: Tensor) -> Tensor:
        """The factors of the source x [A, S, d] in the scores: [A, S, d]."""
        return self.v.weight * torch.tanh(self.u(encoded))

    def forward(self, queries: Tensor, keys: Tensor, padding: Tensor) -> Tensor:
        """The weights [A, Q, S] of the source for y [A, Q, d]; `padding` [A, S] is True at padding."""
        scores = torch.tanh(self.w(queries)) @ keys.mT
        return scores.float().masked_fill(padding[:, None], -math.inf).softmax(-1)


@register("model", "moe", MoEConfig)
class MoE(EncoderDecoder):
    """The model of appendix E for one pair of languages."""

    def __init__(self, config: MoEConfig, **vocabularies: Any) -> None:
        super().__init__(config.d_model, config.tie_embeddings, **vocabularies)
        d, hidden = config.d_model, config.d_hidden
        self.config = config
        self.from_left, self.from_right, self.encoder_top = (LSTM(d, d, hidden) for _ in range(3))
        self.decoder_bottom, self.decoder_top = LSTM(2 * d, d, hidden), LSTM(d, d, hidden)
        self.attention = Attention(d)
        self.encoder_experts, self.decoder_experts = (
            Experts(
                d,
                config.d_ff,
                experts=config.experts,
                per_token=config.experts_per_token,
                importance_weight=config.importance_loss,
                load_weight=config.load_loss,
            )
            for _ in range(2)
        )
        self.dropout = Dropout(config.dropout)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=d**-0.5)  # PyTorch's would be too large for a tied output layer

    def parts(self) -> dict[str, list[Any]]:
        """See `HasParts`."""
        encoder = [self.from_left, self.from_right, self.encoder_top, self.encoder_experts]
        decoder = [self.decoder_bottom, self.decoder_top, self.decoder_experts, self.attention]
        return {**super().parts(), "encoder": encoder, "decoder": decoder}

    def decoder_output(self, source: Tensor, target_in: Tensor) -> Tensor:
        """See `EncoderDecoder`."""
        x = self.dropout(self.target_embedding(target_in))
        x = x + self.dropout(self._bottom(x, *self._encode(source))[0])
        x = x + self._mixture(self.decoder_experts, x, Packing.of(target_in != PAD))
        return x + self.dropout(self.decoder_top(x))

    def start(self, source: Tensor) -> FixedState:
        """See `EncoderDecoder`. The target part is output and cell of the lower LSTM, then of the upper one."""
        memory = self._encode(source)
        return FixedState(memory, self.decoder_bottom.zeros(memory[0]) + self.decoder_top.zeros(memory[0]))

    def next_output(self, tokens: Tensor, state: FixedState) -> tuple[Tensor, FixedState]:
        """See `EncoderDecoder`."""
        x = self.target_embedding(tokens)
        *bottom, _ = self._bottom_step(x, *state.target[:2], *state.source)
        x = x + bottom[0]
        x = x + self.decoder_experts(x).sigmoid()
        top = self.decoder_top.step(x, *state.target[2:])
        return x + top[0], FixedState(state.source, (*bottom, *top))

    @torch.inference_mode()
    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """See `ShowsAttention`."""
        return {"cross": self._bottom(self.target_embedding(target_in), *self._encode(source))[1][None]}

    def training_flops(self, source_lengths: Lengths, target_lengths: Lengths) -> dict[str, float]:
        """See `CountsFlops`. Matrix products only, each with two for its gradients; a multiply-add is two."""
        config, d = self.config, self.config.d_model
        S, T, pairs = (float(each.sum()) for each in (source_lengths, target_lengths, source_lengths * target_lengths))
        lstm = 2 * config.d_hidden * (4 * 2 * d + (d if config.d_hidden > d else 0))
        experts = expert_flops(d, config.d_ff, config.experts, config.experts_per_token)
        forward = {
            "encoder LSTMs": S * 3 * lstm,
            "encoder experts": S * experts,
            "decoder LSTMs": T * (2 * lstm + 2 * 4 * config.d_hidden * d),
            "decoder experts": T * experts,
            "attention": (S + T) * 2 * d**2 + pairs * 2 * 2 * d,  # a score, and a term of the weighted sum
            "output layer": T * 2 * d * self.vocabulary_size,
        }
        return with_backward(forward)

    def _encode(self, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The encoder's output [B, S, d], the keys of attention [B, S, d], and where `source` is padding [B, S]."""
        padding = source == PAD
        x = self.dropout(self.source_embedding(source))
        from_right = self.from_right(x, (~padding).sum(1))
        x = x + self.dropout(self.from_left(x)) + self.dropout(from_right)
        x = x + self._mixture(self.encoder_experts, x, Packing.of(~padding))
        x = x + self.dropout(self.encoder_top(x))
        return x, self.attention.keys(x), padding

    def _mixture(self, experts: Experts, x: Tensor, tokens: Packing) -> Tensor:
        """The mixture's part of the real positions of `x` [B, T, d], and something finite at padding."""
        return self.dropout(tokens.unpack(experts(tokens.pack(x), len(tokens.places))).sigmoid())

    def _bottom(self, x: Tensor, *memory: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [B, T, d] of the decoder's lower LSTM, and its attention [B, T, S]; `memory` is from `_encode`."""
        output, cell = self.decoder_bottom.zeros(x)
        outputs, weights = [], []
        for each in x.unbind(1):
            output, cell, attended = self._bottom_step(each, output, cell, *memory)
            outputs.append(output)
            weights.append(attended)
        return torch.stack(outputs, 1), torch.cat(weights, 1)

    def _bottom_step(
        self, x: Tensor, output: Tensor, cell: Tensor, encoded: Tensor, keys: Tensor, padding: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The next output, cell and attention [A, W, S], from the input and the last ones [N, d]."""
        weights = self.attention(output.view(len(encoded), -1, output.size(1)), keys, padding)
        context = (weights @ encoded).flatten(0, 1)
        return *self.decoder_bottom.step(torch.cat([x, context], -1), output, cell), weights
