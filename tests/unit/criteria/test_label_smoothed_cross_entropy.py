"""The loss as the paper has it, against PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.criteria.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropy,
    LabelSmoothingConfig,
)
from nmt_cli.interfaces import BOS, EOS, PAD, Batch

TARGET_OUT = torch.tensor([[7, 8, EOS], [EOS, PAD, PAD]])
BATCH = Batch(TARGET_OUT, torch.tensor([[BOS, 7, 8], [BOS, PAD, PAD]]), TARGET_OUT, 4)


class Fixed:
    """A model with given hidden states."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.fixed, self.output_weight, self.output_bias = hidden, weight, bias

    def decoder_output(self, source: Tensor, target_in: Tensor) -> Tensor:
        return self.fixed


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_it_is_pytorchs_loss_of_the_real_tokens(epsilon: float, biased: bool) -> None:
    """Hidden states of padding may be NaN."""
    random = torch.Generator().manual_seed(1)
    weight = torch.randn(13, 5, generator=random, requires_grad=True)
    hidden = torch.randn(2, 3, 5, generator=random)
    hidden[1, 1:] = float("nan")
    bias = torch.linspace(-2, 3, 13) if biased else None
    model: Any = Fixed(hidden, weight, bias)
    loss = LabelSmoothedCrossEntropy(LabelSmoothingConfig(label_smoothing=epsilon))(model, BATCH)
    real = TARGET_OUT != PAD
    logits = F.linear(hidden[real], weight, bias)
    expected = F.cross_entropy(logits, TARGET_OUT[real], reduction="sum", label_smoothing=epsilon)
    torch.testing.assert_close(loss.total, expected)
    torch.testing.assert_close(loss.nll, F.cross_entropy(logits, TARGET_OUT[real], reduction="sum"))
    assert loss.num_tokens == 4
    assert not loss.nll.requires_grad
    torch.testing.assert_close(
        torch.autograd.grad(loss.total, weight), torch.autograd.grad(expected, weight)
    )
