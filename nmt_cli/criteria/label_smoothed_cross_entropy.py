"""Label-smoothed cross-entropy (section 5.4)."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from nmt_cli.criteria.settings import LabelSmoothingConfig
from nmt_cli.interfaces import Batch, Criterion, Loss


class LabelSmoothedCrossEntropy(Criterion):
    """Cross-entropy of p with q = (1 - epsilon) * one-hot + epsilon / V over all V ids.

    It is KL(q || p) plus a constant.
    """

    takes_bins = True

    def __init__(self, config: LabelSmoothingConfig) -> None:
        self.epsilon = config.label_smoothing
        # `fast` has one that needs less memory.
        self.cross_entropy = smoothed_cross_entropy

    def __call__(self, model: Any, batch: Batch) -> Loss:
        """See `Criterion`."""
        hidden, targets = self.outputs(model, batch)  # [tokens, d] and [tokens]
        total, nll = self.cross_entropy(
            hidden, model.output_weight, targets, self.epsilon, model.output_bias
        )
        return Loss(total, nll, batch.num_tokens)


def smoothed_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    epsilon: float,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the smoothed loss and the negative log-likelihood, each summed over tokens.

    The negative log-likelihood has no gradient.

    Args:
        hidden: [tokens, d] decoder output.
        weight, bias: [V, d] and [V] of the logits.
        targets: [tokens] ids.
    """
    log_p = F.linear(hidden, weight, bias).float().log_softmax(1)  # [tokens, V]
    nll = -log_p.gather(1, targets[:, None]).sum()
    uniform_nll = -log_p.mean(1).sum()
    return (1 - epsilon) * nll + epsilon * uniform_nll, nll.detach()
