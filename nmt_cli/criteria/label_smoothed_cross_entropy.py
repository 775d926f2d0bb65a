"""Label-smoothed cross-entropy (section 5.4), computed in chunks of rows.

The logits [tokens, V] would be the largest tensor of a training step. Only `CHUNK` rows of them exist at a time: the
gradient of each chunk is computed right after its loss. Padding is left out before the projection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.interfaces import PAD, Batch, Loss, Model
from nmt_cli.registry import option, register

CHUNK = {"cpu": 512, "cuda": 4096}
"""Rows of logits in a chunk, by device; on a CPU they stay in its caches."""


@dataclass(frozen=True)
class LabelSmoothingConfig:
    """Settings of the label-smoothed cross-entropy (section 5.4)."""

    label_smoothing: float = option(
        0.1, "epsilon_ls: share of the target distribution spread over the vocabulary.", minimum=0.0, maximum=0.99
    )


@register("criterion", "label_smoothed_cross_entropy", LabelSmoothingConfig)
class LabelSmoothedCrossEntropy:
    """Cross-entropy with q = (1 - epsilon) * one-hot + epsilon / V over all V ids; KL(q || p) plus a constant."""

    def __init__(self, config: LabelSmoothingConfig) -> None:
        self.epsilon = config.label_smoothing

    def __call__(self, model: Model, batch: Batch) -> Loss:
        """See `Criterion`."""
        real = batch.target_out != PAD  # [B, T]
        hidden = model.decoder_output(batch.source, batch.target_in)[real]  # [tokens, d]
        total, nll = smoothed_cross_entropy(hidden, model.output_weight, batch.target_out[real], self.epsilon)
        return Loss(total, nll, batch.num_tokens)


def smoothed_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return the smoothed loss and the negative log-likelihood (without gradient), each summed over rows.

    Args:
        hidden: [tokens, d] decoder output; weight: [V, d] output weight; targets: [tokens] ids.
    """
    return _ChunkedCrossEntropy.apply(hidden, weight, targets, epsilon, torch.is_grad_enabled())  # type: ignore[no-untyped-call]


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, epsilon: float, with_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        # Under autocast, layer normalisation returns float32; the products below are in autocast's type.
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        low_weight, low_hidden = weight.to(dtype), hidden.to(dtype)
        total, nll = weight.new_zeros(2).unbind()
        hidden_gradient = torch.empty_like(hidden) if with_gradient else None
        weight_gradient = torch.zeros_like(weight) if with_gradient else None
        size = CHUNK.get(device, CHUNK["cpu"])
        for start in range(0, len(hidden), size):
            rows = slice(start, start + size)
            logits = F.linear(low_hidden[rows], low_weight).float()  # [rows, V]
            target = targets[rows, None]
            log_normaliser = logits.logsumexp(-1, keepdim=True)
            token_nll = log_normaliser - logits.gather(1, target)
            uniform_nll = log_normaliser - logits.mean(-1, keepdim=True)  # the mean over all words as targets
            nll = nll + token_nll.sum()
            total = total + ((1 - epsilon) * token_nll + epsilon * uniform_nll).sum()
            if hidden_gradient is None or weight_gradient is None:
                continue
            # d loss / d logits = p - q, computed in place of the logits
            difference = logits.sub_(log_normaliser).exp_().sub_(epsilon / len(weight))
            difference.scatter_add_(1, target, difference.new_full(target.shape, epsilon - 1))
            difference = difference.to(dtype)
            hidden_gradient[rows] = difference @ low_weight
            if dtype == weight.dtype:  # `addmm_` takes one dtype only
                weight_gradient.addmm_(difference.t(), low_hidden[rows])
            else:
                weight_gradient += difference.t() @ low_hidden[rows]
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * gradients[0], weight_gradient * gradients[0], None, None, None
