"""Label-smoothed cross-entropy (section 5.4), computed in chunks of rows.

The logits [tokens, V] would be the largest tensor of a training step. Only a chunk of them exists at a time: its
gradient takes their place right after the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.device import product_dtype
from nmt_cli.interfaces import PAD, Batch, Loss, Model
from nmt_cli.packing import Packing
from nmt_cli.registry import option, register

CHUNK = {"cpu": 1024, "cuda": 8192}
"""Rows of logits in a chunk, by device: many, for efficient products."""
BLOCK = {"cpu": 1 << 20, "cuda": 1 << 30}
"""Logits in a block of a chunk, for the softmax; on a CPU they stay in its caches."""


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
        padded, weight = model.decoder_output(batch.source, batch.target_in), model.output_weight
        hidden, targets = rows_of_tokens(padded, batch.target_out, wait=not padded.is_cuda)
        total, nll = smoothed_cross_entropy(hidden, weight, targets, self.epsilon)
        excess = (len(targets) - batch.num_tokens) * math.log(len(weight))  # of rows of zeros, without gradient
        return Loss(total - excess, nll - excess, batch.num_tokens)


def rows_of_tokens(hidden: Tensor, targets: Tensor, wait: bool) -> tuple[Tensor, Tensor]:
    """Return `hidden` [B, T, d] and `targets` [B, T] as rows, with zeros in rows of padding.

    Args:
        wait: leave most rows of padding out. To find the others, the host waits for the device.
    """
    real = targets != PAD
    if not wait:
        return hidden.masked_fill(~real[..., None], 0.0).flatten(0, 1), targets.flatten()
    packing = Packing.of(real)
    return packing.pack(hidden), packing.pack(targets[..., None]).squeeze(1)


def smoothed_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return the smoothed loss and the negative log-likelihood (without gradient), each summed over rows.

    Args:
        hidden: [tokens, d] decoder output; weight: [V, d] output weight; targets: [tokens] ids.
    """
    return _ChunkedCrossEntropy.apply(hidden, weight, targets, epsilon, torch.is_grad_enabled())  # type: ignore[no-untyped-call]


class _ChunkedCrossEntropy(torch.autograd.Function):
    """The loss, with the gradient d loss / d logits = p - q at once, where p is the softmax and q the targets.

    The part epsilon / V of q is the same for all logits, so its share of the loss and of the gradients follows from the
    sums of the weight's rows and of the hidden states.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, epsilon: float, with_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        dtype = product_dtype(hidden)
        low_hidden, low_weight = hidden.to(dtype), weight.to(dtype)
        hidden_gradient = torch.empty_like(hidden) if with_gradient else None
        weight_gradient = None
        log_normalisers, target_logits = hidden.new_empty(2, len(hidden), dtype=torch.float32)  # [tokens]
        for rows in _parts(len(hidden), CHUNK[hidden.device.type]):
            logits = F.linear(low_hidden[rows], low_weight)  # [rows, V]
            for part in _parts(len(logits), BLOCK[hidden.device.type] // len(weight)):
                block = slice(rows.start + part.start, rows.start + part.stop)
                log_normalisers[block], target_logits[block] = _to_gradient(logits[part], targets[block], epsilon)
            if hidden_gradient is not None:
                hidden_gradient[rows] = logits @ low_weight
                weight_gradient = _plus_product(weight_gradient, logits.t(), low_hidden[rows], weight.dtype)
        uniform, hidden_sum = weight.sum(0) / len(weight), hidden.sum(0, dtype=weight.dtype)  # [d]
        nll = (log_normalisers - target_logits).sum()
        uniform_nll = log_normalisers.sum() - (hidden_sum * uniform).sum()  # not a product, which autocast would lower
        if hidden_gradient is not None and weight_gradient is not None:
            hidden_gradient -= epsilon * uniform
            weight_gradient -= epsilon / len(weight) * hidden_sum
        ctx.gradients = hidden_gradient, weight_gradient
        ctx.mark_non_differentiable(nll)
        return (1 - epsilon) * nll + epsilon * uniform_nll, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.gradients
        del ctx.gradients  # scaled in place, so there is no second backward pass
        return hidden_gradient.mul_(gradients[0]), weight_gradient.mul_(gradients[0]), None, None, None


def _parts(rows: int, longest: int) -> Iterator[slice]:
    """Divide rows into equal parts of `longest` rows at most."""
    count = -(-rows // max(longest, 1))
    length = -(-rows // max(count, 1))
    for start in range(0, rows, max(length, 1)):
        yield slice(start, min(start + length, rows))


def _to_gradient(logits: Tensor, targets: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return the log-normalisers and the targets' logits, [rows] in float32; replace `logits` [rows, V] by p - q.

    The uniform part of q is left out.
    """
    targets = targets[:, None]
    target_logits, largest = logits.gather(1, targets).float(), logits.amax(1).float()
    in_place = logits if logits.dtype == torch.float32 and not logits.is_cuda else None
    probabilities = torch.softmax(logits, 1, dtype=torch.float32, out=in_place)
    log_normalisers = largest - probabilities.amax(1).log()  # the largest p is exp(largest - log-normaliser)
    probabilities.scatter_add_(1, targets, probabilities.new_full(targets.shape, epsilon - 1))
    if logits is not probabilities:
        logits.copy_(probabilities)
    return log_normalisers, target_logits.squeeze(1)


def _plus_product(total: Tensor | None, a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `total` + `a` x `b` in `dtype`, in the memory of `total`."""
    if total is None:
        return (a @ b).to(dtype)
    return total.addmm_(a, b) if a.dtype == dtype else total.add_(a @ b)
