"""Section 5.4: label smoothing with epsilon_ls = 0.1."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.criteria.label_smoothed_cross_entropy import smoothed_cross_entropy

V, d, TOKENS = 11, 6, 9


def smoothed(targets: Tensor, epsilon: float) -> Tensor:
    """q is (1 - epsilon) times one-hot plus epsilon times uniform (Szegedy et al., section 7)."""
    return (1 - epsilon) * F.one_hot(targets, V).double() + epsilon / V


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
def test_loss_is_the_kl_divergence_plus_the_entropy_of_q(epsilon: float) -> None:
    """The entropy is constant: its gradients are the divergence's."""
    random = torch.Generator().manual_seed(1)
    hidden = torch.randn(TOKENS, d, generator=random, requires_grad=True)
    weight = torch.randn(V, d, generator=random, requires_grad=True)
    targets = torch.randint(0, V, (TOKENS,), generator=random)
    total, nll = smoothed_cross_entropy(hidden, weight, targets, epsilon)
    log_p = (hidden @ weight.T).double().log_softmax(-1)
    q = smoothed(targets, epsilon)
    divergence = F.kl_div(log_p, q, reduction="sum")
    entropy = -torch.xlogy(q, q).sum()
    assert total.item() == pytest.approx((divergence + entropy).item(), rel=1e-5)
    assert nll.item() == pytest.approx(
        -log_p.gather(1, targets[:, None]).sum().item(), rel=1e-5, abs=1e-5
    )
    got = torch.autograd.grad(total, [hidden, weight])
    torch.testing.assert_close(
        got, torch.autograd.grad(divergence, [hidden, weight]), atol=2e-6, rtol=1e-4
    )


def test_the_loss_of_a_perfect_model_is_the_entropy_of_q() -> None:
    """Smoothing hurts perplexity: the best model has p = q, and its loss is H(q)."""
    epsilon = 0.1
    targets = torch.tensor([4])
    weight = smoothed(targets, epsilon).log().float().T  # logits for a feature of 1
    total, nll = smoothed_cross_entropy(torch.ones(1, 1), weight, targets, epsilon)
    share, rest = 1 - epsilon + epsilon / V, epsilon / V
    entropy = -share * math.log(share) - (V - 1) * rest * math.log(rest)
    assert total.item() == pytest.approx(entropy, rel=1e-6)
    assert nll.item() == pytest.approx(-math.log(share), rel=1e-6)
