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
        self.weight = config.r_drop_alpha / (2 if config.sum_of_passes else 1)

    def __call__(self, model: Any, batch: Batch) -> Loss:
        """See `Criterion`."""
        if not model.training:
            return super().__call__(model, batch)
        # [N, d] each.
        (first, targets), (second, _) = (self.outputs(model, batch), self.outputs(model, batch))
        targets = F.pad(targets, (0, len(first) - len(targets)), value=PAD)  # which does not count
        rows = self.logit_rows // 4  # a chunk has two tensors of logits and their softmaxes
        sums = targets.new_zeros(3, dtype=torch.float32)
        for chunk in zip(
            *(torch.split(each, rows) for each in (first, second, targets)), strict=True
        ):
            output = model.output_weight, model.output_bias
            # The logits are computed again in the backward pass, so those of one chunk only are in
            # memory.
            sums = sums + checkpoint(
                sums_of, *chunk, *output, use_reentrant=False, preserve_rng_state=False
            )
        nll, uniform, divergence = sums / 2
        total = (1 - self.epsilon) * nll + self.epsilon * uniform + self.weight * divergence
        return Loss(total, nll.detach(), batch.num_tokens)


def sums_of(
    first: Tensor, second: Tensor, targets: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Return three sums [3] over both passes [rows, d]: of the likelihood, of a uniform target, and
    of KL.
    """
    # [rows, V]
    log_p, log_q = (F.linear(each, weight, bias).float().log_softmax(1) for each in (first, second))
    nll = F.nll_loss(log_p + log_q, targets, ignore_index=PAD, reduction="sum")
    divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(1)
    return torch.stack(
        [nll, *(torch.stack([-(log_p + log_q).mean(1), divergence]) * (targets != PAD)).sum(1)]
    )
