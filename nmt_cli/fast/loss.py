"""Label-smoothed cross-entropy (section 5.4), computed in chunks of rows.

The logits [tokens, V] would be the largest tensor of a training step. Only a chunk of them exists
at a time: its gradient takes their place right after the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.device import product_dtype
from nmt_cli.fast.rows import outputs
from nmt_cli.interfaces import PAD, Criterion

ToGradient: TypeAlias = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]


def to_gradient(logits: Tensor, targets: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return the log-normalisers and the targets' logits, [rows] in float32.

    `logits` [rows, V] are replaced by p - q, without the uniform part of q.
    """
    targets = targets[:, None]
    values = logits.float()
    target_logits = values.gather(1, targets)
    largest = values.amax(1)
    torch.softmax(values, 1, out=values)
    # The largest p is exp(largest - log-normaliser).
    log_normalisers = largest - values.amax(1).log()
    values.scatter_add_(1, targets, values.new_full(targets.shape, epsilon - 1))
    if logits is not values:
        logits.copy_(values)
    return log_normalisers, target_logits.squeeze(1)


@dataclass
class ChunkedCrossEntropy:
    """`smoothed_cross_entropy` in less memory."""

    chunk: int  # rows of logits in a chunk: many, for efficient products
    block: int  # logits in a block of a chunk, for the softmax
    # A target `PAD` does not count, so that shapes do not depend on the number of tokens.
    takes_padding: bool = False
    to_gradient: ToGradient = to_gradient

    def __call__(
        self,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        epsilon: float,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See `smoothed_cross_entropy`. There may be more rows than targets: they do not count."""
        if bias is not None:
            # The bias is the weight of a hidden state of 1. Eight columns keep the rows aligned.
            hidden = F.pad(hidden, (0, 8), value=1.0)
            weight = torch.cat([weight, bias[:, None], weight.new_zeros(len(weight), 7)], 1)
        real = None
        if self.takes_padding:
            # With hidden states of 0, the filler adds nothing to the weight's gradient.
            targets = F.pad(targets, (0, len(hidden) - len(targets)), value=PAD)
            real = targets != PAD
            hidden = hidden.where(real[:, None], 0.0)
        arguments = (hidden, weight, targets, epsilon, self, torch.is_grad_enabled(), real)
        return _Chunked.apply(*arguments)  # type: ignore[no-untyped-call]

    def compile(self) -> None:
        """Compile the loss: a few passes over the logits in place of ten."""
        self.to_gradient = torch.compile(to_gradient_for_compiler)


class _Chunked(torch.autograd.Function):
    """The loss, and at once its gradient d loss / d logits = p - q.

    p is the softmax, and q the smoothed target. The part epsilon / V of q is the same for all
    logits, so its share of the loss and of the gradients follows from the sums of the weight's rows
    and of the hidden states.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        epsilon: float,
        sizes: ChunkedCrossEntropy,
        with_gradient: bool,
        real: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        dtype = product_dtype(hidden)
        low_hidden = hidden.to(dtype)
        low_weight = weight.to(dtype)
        count = len(targets)
        targets = F.pad(targets, (0, len(hidden) - count))
        hidden_gradient = torch.empty_like(hidden) if with_gradient else None
        weight_gradient = None
        with_weight_gradient = with_gradient and ctx.needs_input_grad[1]  # it may be frozen
        # [rows] each
        log_normalisers, target_logits = hidden.new_empty(2, len(hidden), dtype=torch.float32)
        # One buffer for the logits of all chunks: to allocate them again costs time.
        buffer = low_hidden.new_empty(min(len(hidden), sizes.chunk), len(weight))
        for rows in _equal_slices(len(hidden), sizes.chunk):
            logits = buffer[: rows.stop - rows.start]  # [rows of the chunk, V]
            torch.mm(low_hidden[rows], low_weight.t(), out=logits)
            for inner in _equal_slices(len(logits), sizes.block // len(weight)):
                block = slice(rows.start + inner.start, rows.start + inner.stop)
                log_normalisers[block], target_logits[block] = sizes.to_gradient(
                    logits[inner], targets[block], epsilon
                )
            logits[max(count - rows.start, 0) :] = 0  # of the filler
            if hidden_gradient is not None:
                hidden_gradient[rows] = logits @ low_weight
            if with_weight_gradient:
                weight_gradient = _plus_product(
                    weight_gradient, logits.t(), low_hidden[rows], weight.dtype
                )
        mean_weight = weight.sum(0) / len(weight)  # [d]
        hidden_sum = hidden[:count].sum(0, dtype=weight.dtype)  # [d]
        if real is not None:
            log_normalisers = log_normalisers * real
            target_logits = target_logits * real
        log_normaliser = log_normalisers[:count].sum()
        nll = log_normaliser - target_logits[:count].sum()
        # Not a product of vectors, which autocast would compute in low precision.
        uniform_nll = log_normaliser - (hidden_sum * mean_weight).sum()
        if hidden_gradient is not None:
            hidden_gradient[:count] -= epsilon * mean_weight
        if weight_gradient is not None:
            weight_gradient -= epsilon / len(weight) * hidden_sum
        ctx.gradients = hidden_gradient, weight_gradient
        ctx.mark_non_differentiable(nll)
        return (1 - epsilon) * nll + epsilon * uniform_nll, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.gradients
        del ctx.gradients  # scaled in place, so there is no second backward pass
        for gradient in (hidden_gradient, weight_gradient):
            if gradient is not None:
                gradient.mul_(gradients[0])
        return hidden_gradient, weight_gradient, None, None, None, None, None


def _equal_slices(rows: int, longest: int) -> Iterator[slice]:
    """Divide rows into slices of about the same length, at most `longest`, and at least 1."""
    count = max(math.ceil(rows / max(longest, 1)), 1)
    length = max(math.ceil(rows / count), 1)
    for start in range(0, rows, length):
        yield slice(start, min(start + length, rows))


def to_gradient_for_compiler(
    logits: Tensor, targets: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """As `to_gradient`, in operations that a compiler can join."""
    log_normalisers = logits.float().logsumexp(1)
    is_target = torch.arange(logits.size(1), device=logits.device) == targets[:, None]
    target_logits = torch.where(is_target, logits.float(), 0.0).sum(1)
    logits.copy_((logits.float() - log_normalisers[:, None]).exp() - (1 - epsilon) * is_target)
    return log_normalisers, target_logits


def _plus_product(total: Tensor | None, a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    if total is None:
        return (a @ b).to(dtype)
    if a.dtype == dtype:
        return total.addmm_(a, b)
    return total.add_(a @ b)


def fit_criterion(criterion: Criterion, cross_entropy: ChunkedCrossEntropy) -> None:
    """Let a criterion compute from rows of tokens, and the cross-entropy in chunks, if it has one.

    A criterion with `outputs` of its own keeps them.
    """
    if type(criterion).outputs is Criterion.outputs:
        criterion.outputs = outputs  # type: ignore[method-assign]
    criterion.logit_rows = cross_entropy.chunk
    if isinstance(criterion, LabelSmoothedCrossEntropy):
        criterion.cross_entropy = cross_entropy
