"""Label-smoothed cross-entropy (section 5.4) over the vocabulary, computed in chunks of rows.

The matrix of logits, [tokens, V], is the largest thing in a training step. Here no more than `CHUNK` rows of it
exist at
a time: the gradient of each chunk is taken while its logits are at hand, and padding never meets the output layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.interfaces import PAD, Batch, Loss
from nmt_cli.registry import option, register

CHUNK = {"cpu": 512, "cuda": 4096}
"""Rows of logits at a time: on a CPU what stays in its caches."""


@dataclass(frozen=True)
class LabelSmoothingConfig:
    """Section 5.4."""

    label_smoothing: float = option(
        0.1,
        "epsilon_ls: the share of the target distribution that is spread over the vocabulary",
        minimum=0.0,
        maximum=0.99,
    )


@register("criterion", "label_smoothed_cross_entropy", LabelSmoothingConfig)
class LabelSmoothedCrossEntropy:
    """Cross-entropy against q = (1 - epsilon) * one-hot + epsilon / V, summed over real target tokens."""

    def __init__(self, config: LabelSmoothingConfig) -> None:
        self.epsilon = config.label_smoothing

    def __call__(self, model: Any, batch: Batch) -> Loss:
        """Sums over the tokens of `batch`; equal to KL(q || p) up to the entropy of q, which is constant."""
        real = batch.target_out != PAD  # [B, T]
        features = model.features(batch.source, batch.target_in)[real]  # [tokens, d]
        total, nll = smoothed_cross_entropy(features, model.output_weight, batch.target_out[real], self.epsilon)
        return Loss(total, nll, batch.num_tokens)

    def training_memory(self, model: Any, tokens: int, *, on_gpu: bool) -> int:
        """Bytes that it takes for `tokens` target tokens: a chunk of logits and their exponentials, the features'
        gradient, and the gradient of the output weight twice, as it is and times what comes from behind.
        """
        vocabulary_size, d = model.output_weight.shape
        rows = min(tokens, CHUNK["cuda" if on_gpu else "cpu"])
        return int(4 * (2 * rows * vocabulary_size + tokens * d + 2 * vocabulary_size * d))


def smoothed_cross_entropy(features: Tensor, weight: Tensor, targets: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The smoothed loss and the negative log-likelihood, each summed over rows; only the first carries gradients.

    Args:
        features: [tokens, d]; weight: [V, d]; targets: [tokens] ids.
    """
    total, nll = _ChunkedCrossEntropy.apply(features, weight, targets, epsilon, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return total, nll


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, targets: Tensor, epsilon: float, with_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        # Layer normalisation gives float32 under autocast, too, and a product in place would stay in that type.
        dtype = _product_type(features)
        low, inputs = weight.to(dtype), features.to(dtype)
        total, nll = weight.new_zeros(2).unbind()
        feature_gradient = torch.empty_like(features) if with_gradient else None
        weight_gradient = torch.zeros_like(weight) if with_gradient else None
        size = CHUNK.get(features.device.type, CHUNK["cpu"])
        for start in range(0, len(features), size):
            rows = slice(start, start + size)
            logits = F.linear(inputs[rows], low).float()  # [rows, V]
            target = targets[rows, None]
            log_normaliser = logits.logsumexp(-1, keepdim=True)
            token_nll = log_normaliser - logits.gather(1, target)
            nll = nll + token_nll.sum()
            total = (
                total + ((1 - epsilon) * token_nll + epsilon * (log_normaliser - logits.mean(-1, keepdim=True))).sum()
            )
            if feature_gradient is None or weight_gradient is None:
                continue
            # d loss / d logits = p - q
            difference = logits.sub_(log_normaliser).exp_().sub_(epsilon / len(weight))
            difference.scatter_add_(1, target, difference.new_full(target.shape, epsilon - 1))
            difference = difference.to(dtype)
            feature_gradient[rows] = difference @ low
            if dtype == weight.dtype:
                weight_gradient.addmm_(difference.t(), inputs[rows])
            else:
                weight_gradient += difference.t() @ inputs[rows]
        ctx.save_for_backward(feature_gradient, weight_gradient)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        feature_gradient, weight_gradient = ctx.saved_tensors
        return feature_gradient * gradients[0], weight_gradient * gradients[0], None, None, None


def _product_type(features: Tensor) -> torch.dtype:
    """What matrix products are computed in: autocast's type where it is on."""
    kind = features.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else features.dtype
