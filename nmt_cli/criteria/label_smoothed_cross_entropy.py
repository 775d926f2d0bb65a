"""Label-smoothed cross-entropy (section 5.4), computed in chunks of rows.

The logits [tokens, V] would be the largest tensor of a training step. Only a chunk of them exists at a time: its
gradient takes their place right after the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.criteria.settings import LabelSmoothingConfig
from nmt_cli.device import product_dtype
from nmt_cli.interfaces import PAD, Batch, ComputesRows, Loss, Model, output_bias_of
from nmt_cli.packing import Bins

ToGradient: TypeAlias = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]

CHUNK = {"cpu": 1024, "cuda": 8192}  # rows of logits in a chunk, by device: many, for efficient products
BLOCK = {"cpu": 1 << 19, "cuda": 1 << 30}
"""Logits in a block of a chunk, for the softmax; on a CPU they stay in its caches."""


class LabelSmoothedCrossEntropy:
    """Cross-entropy with q = (1 - epsilon) * one-hot + epsilon / V over all V ids; KL(q || p) plus a constant."""

    takes_bins = True

    def __init__(self, config: LabelSmoothingConfig) -> None:
        self.epsilon, self.to_gradient = config.label_smoothing, _to_gradient

    def compile(self) -> None:
        """Compile the loss, for training on a GPU: a few passes over the logits in place of ten."""
        self.to_gradient = torch.compile(_to_gradient_for_compiler)

    def __call__(self, model: Model, batch: Batch) -> Loss:
        hidden, weight, bias = decoder_rows(model, batch), model.output_weight, output_bias_of(model)
        packing, ids = batch.target_packing, batch.target_out.flatten()
        targets, real = (ids, ids != PAD) if isinstance(packing, Bins) else (ids[packing.places], None)
        total, nll = smoothed_cross_entropy(hidden, weight, targets, self.epsilon, self.to_gradient, bias, real)
        return Loss(total, nll, batch.num_tokens)


def decoder_rows(model: Model, batch: Batch) -> Tensor:
    """Return the hidden states [N, d] of the rows of `batch.target_packing`."""
    if isinstance(model, ComputesRows):
        return model.decoder_rows(batch.source, batch.target_in, batch.source_packing, batch.target_packing)
    assert not isinstance(batch.target_packing, Bins)
    return batch.target_packing.pack(model.decoder_output(batch.source, batch.target_in))


def smoothed_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    epsilon: float,
    to_gradient: ToGradient | None = None,
    bias: Tensor | None = None,
    real: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the smoothed loss and the negative log-likelihood (without gradient), each summed over tokens.

    Args:
        hidden: [rows, d] decoder output, of which the first rows are those of the tokens.
        weight: [V, d] output weight.
        targets: [tokens] ids.
        bias: [V] of the logits.
        real: [rows], True where a row is of a token, for shapes that do not depend on their number.
    """
    if bias is not None:  # it is the weight of a hidden state of 1; eight columns keep the rows aligned
        hidden = F.pad(hidden, (0, 8), value=1.0)
        weight = torch.cat([weight, bias[:, None], weight.new_zeros(len(weight), 7)], 1)
    if real is not None:  # with zeros, the filler adds nothing to the weight's gradient
        hidden = hidden.where(real[:, None], 0.0)
    arguments = (hidden, weight, targets, epsilon, to_gradient or _to_gradient, torch.is_grad_enabled(), real)
    return _ChunkedCrossEntropy.apply(*arguments)  # type: ignore[no-untyped-call]


class _ChunkedCrossEntropy(torch.autograd.Function):
    """The loss, with the gradient d loss / d logits = p - q at once, where p is the softmax and q the targets.

    The part epsilon / V of q is the same for all logits, so its share of the loss and of the gradients follows from the
    sums of the weight's rows and of the hidden states.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        epsilon: float,
        to_gradient: ToGradient,
        with_gradient: bool,
        real: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        dtype, count = product_dtype(hidden), len(targets)
        targets = F.pad(targets, (0, len(hidden) - count))
        low_hidden, low_weight = hidden.to(dtype), weight.to(dtype)
        hidden_gradient = torch.empty_like(hidden) if with_gradient else None
        weight_gradient = None
        with_weight_gradient = with_gradient and ctx.needs_input_grad[1]  # it may be frozen
        log_normalisers, target_logits = hidden.new_empty(2, len(hidden), dtype=torch.float32)  # [tokens]
        longest = CHUNK[hidden.device.type]
        buffer = low_hidden.new_empty(min(len(hidden), longest), len(weight))
        for rows in _slices(len(hidden), longest):
            logits = torch.mm(low_hidden[rows], low_weight.t(), out=buffer[: rows.stop - rows.start])  # [rows, V]
            for inner in _slices(len(logits), BLOCK[hidden.device.type] // len(weight)):
                block = slice(rows.start + inner.start, rows.start + inner.stop)
                log_normalisers[block], target_logits[block] = to_gradient(logits[inner], targets[block], epsilon)
            logits[max(count - rows.start, 0) :] = 0
            if hidden_gradient is not None:
                hidden_gradient[rows] = logits @ low_weight
            if with_weight_gradient:
                weight_gradient = _plus_product(weight_gradient, logits.t(), low_hidden[rows], weight.dtype)
        uniform, hidden_sum = weight.sum(0) / len(weight), hidden[:count].sum(0, dtype=weight.dtype)  # [d]
        if real is not None:
            log_normalisers, target_logits = log_normalisers * real, target_logits * real
        log_normaliser = log_normalisers[:count].sum()
        nll = log_normaliser - target_logits[:count].sum()
        uniform_nll = log_normaliser - (hidden_sum * uniform).sum()  # not a product, which autocast would lower
        if hidden_gradient is not None:
            hidden_gradient[:count] -= epsilon * uniform
        if weight_gradient is not None:
            weight_gradient -= epsilon / len(weight) * hidden_sum
        ctx.gradients = hidden_gradient, weight_gradient
        ctx.mark_non_differentiable(nll)
        return (1 - epsilon) * nll + epsilon * uniform_nll, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.gradients
        del ctx.gradients  # scaled in place, so there is no second backward pass
        scaled = (each if each is None else each.mul_(gradients[0]) for each in (hidden_gradient, weight_gradient))
        return *scaled, None, None, None, None, None


def _slices(rows: int, longest: int) -> Iterator[slice]:
    """Divide rows into equal slices of `longest` rows at most."""
    count = -(-rows // max(longest, 1))
    length = max(-(-rows // max(count, 1)), 1)
    return (slice(start, min(start + length, rows)) for start in range(0, rows, length))


def _to_gradient(logits: Tensor, targets: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return the log-normalisers and the targets' logits, [rows] in float32; replace `logits` [rows, V] by p - q.

    The uniform part of q is left out.
    """
    targets, values = targets[:, None], logits.float()
    target_logits, largest = values.gather(1, targets), values.amax(1)
    torch.softmax(values, 1, out=values)
    log_normalisers = largest - values.amax(1).log()  # the largest p is exp(largest - log-normaliser)
    values.scatter_add_(1, targets, values.new_full(targets.shape, epsilon - 1))
    if logits is not values:
        logits.copy_(values)
    return log_normalisers, target_logits.squeeze(1)


def _to_gradient_for_compiler(logits: Tensor, targets: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Do the same in operations that a compiler can join."""
    log_normalisers = logits.float().logsumexp(1)
    is_target = torch.arange(logits.size(1), device=logits.device) == targets[:, None]
    target_logits = torch.where(is_target, logits.float(), 0.0).sum(1)
    logits.copy_((logits.float() - log_normalisers[:, None]).exp() - (1 - epsilon) * is_target)
    return log_normalisers, target_logits


def _plus_product(total: Tensor | None, a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    if total is None:
        return (a @ b).to(dtype)
    return total.addmm_(a, b) if a.dtype == dtype else total.add_(a @ b)
