"""R-Drop: two passes with different dropout must agree (Liang et al. 2021, section 2).

The paper's loss of a token is the sum of the cross-entropies of both passes, and alpha times the
symmetric divergence (KL(p || q) + KL(q || p)) / 2 (equations 2 to 4). The loss here is half of it,
to compare with the loss of one pass.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from nmt_cli.annexes.later.settings import RDropConfig
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.interfaces import PAD, Batch, Loss


class RDrop(LabelSmoothedCrossEntropy):
    """In evaluation mode it is label-smoothed cross-entropy, in one pass."""

    def __init__(self, config: RDropConfig) -> None:
        super().__init__(config)
        self.weight = config.r_drop_alpha
        if config.sum_of_passes:
            self.weight /= 2

    def __call__(self, model: Any, batch: Batch) -> Loss:
        """See `Criterion`."""
        if not model.training:
            return super().__call__(model, batch)
        first, targets = self.outputs(model, batch)  # [N, d], [n], n <= N
        second, _ = self.outputs(model, batch)  # [N, d]
        targets = F.pad(targets, (0, len(first) - len(targets)), value=PAD)  # PAD does not count
        rows = self.logit_rows // 4  # a chunk has two tensors of logits and their softmaxes
        chunks = [torch.split(tensor, rows) for tensor in (first, second, targets)]
        sums = targets.new_zeros(3, dtype=torch.float32)
        for chunk in zip(*chunks, strict=True):
            # The backward pass computes the logits of a chunk again, so that memory never holds
            # the logits of all.
            sums = sums + checkpoint(
                sums_of,
                *chunk,
                model.output_weight,
                model.output_bias,
                use_reentrant=False,
                preserve_rng_state=False,
            )
        nll, uniform, divergence = sums / 2
        total = (1 - self.epsilon) * nll + self.epsilon * uniform + self.weight * divergence
        return Loss(total, nll.detach(), batch.num_tokens)


def sums_of(
    first: Tensor, second: Tensor, targets: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Return three sums [3] over both passes [rows, d].

    They are the negative log-likelihood, the cross-entropy with a uniform target, and the
    symmetric divergence, twice.
    """
    log_p = F.linear(first, weight, bias).float().log_softmax(1)  # [rows, V]
    log_q = F.linear(second, weight, bias).float().log_softmax(1)
    nll = F.nll_loss(log_p + log_q, targets, ignore_index=PAD, reduction="sum")
    # The order of the next two decides on the last bits of the gradients.
    divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(1)
    uniform = -(log_p + log_q).mean(1)
    of_tokens = torch.stack([uniform, divergence]) * (targets != PAD)  # [2, rows]
    return torch.stack([nll, *of_tokens.sum(1)])
