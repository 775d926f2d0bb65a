"""Sampled softmax: a part of the vocabulary stands for the whole (Jean et al. 2015, section 3)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from nmt_cli.annexes.later.settings import SampledCrossEntropyConfig
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.interfaces import PAD, Batch, Loss


class SampledCrossEntropy(LabelSmoothedCrossEntropy):
    """Label-smoothed cross-entropy over the targets of a micro-batch and a sample of the others.

    A sampled id counts for several, so that the sum of all exponentials is as large on average.
    The uniform part of the targets is over the same ids. In evaluation mode it is the exact loss.
    """

    takes_bins = False  # the number of ids differs, which a CUDA graph cannot replay

    def __init__(self, config: SampledCrossEntropyConfig) -> None:
        super().__init__(config)
        self.sampled_ids = config.sampled_ids

    def __call__(self, model: Any, batch: Batch) -> Loss:
        """See `Criterion`."""
        if not model.training:
            return super().__call__(model, batch)
        hidden, targets = self.outputs(model, batch)  # [N, d] and [n]
        weight = model.output_weight  # [V, d]
        # PAD's place is 0 again: a target that does not count.
        padded = F.pad(targets, (1, 0), value=PAD)
        present, places = torch.unique(padded, return_inverse=True)
        is_other = torch.ones(len(weight), dtype=torch.bool, device=weight.device)
        is_other[present] = False
        others = is_other.nonzero().squeeze(1)
        order = torch.randperm(len(others), device=weight.device)
        sample = others[order[: self.sampled_ids]]
        ids = torch.cat([present, sample])  # [v]
        bias = weight.new_zeros(len(ids))
        bias[len(present) :] = math.log(max(len(others), 1) / max(len(sample), 1))
        if model.output_bias is not None:
            bias = bias + model.output_bias[ids]
        total, nll = self.cross_entropy(hidden, weight[ids], places[1:], self.epsilon, bias)
        return Loss(total, nll, batch.num_tokens)
