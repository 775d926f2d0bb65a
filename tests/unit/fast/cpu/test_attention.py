"""Full attention on a CPU: its softmax and its gradients by hand."""

from __future__ import annotations

import math

import pytest
import torch

from nmt_cli.fast.cpu.attention import full_attention, softmax_, softmax_gradient
from nmt_cli.layers.attention import AttentionMask, FullAttention


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_full_attention(causal: bool) -> None:
    """The output and the gradients, also for a value of another width."""
    torch.manual_seed(0)
    kernel, padding = FullAttention(), torch.tensor([[False] * 20, [False] * 17 + [True] * 3])
    mask = AttentionMask(None if causal else padding, causal)
    heads = [torch.randn(2, 2, 20, width, requires_grad=True) for width in (3, 3, 5)]
    fast_output, expected = full_attention(kernel, *heads, mask), kernel(*heads, mask)
    torch.testing.assert_close(fast_output, expected)
    fast_output, expected = (
        torch.autograd.grad(output.square().sum(), heads) for output in (fast_output, expected)
    )
    torch.testing.assert_close(fast_output, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 40])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 4e-3)]
)
def test_softmax_agrees_with_pytorch(length: int, dtype: torch.dtype, tolerance: float) -> None:
    """Also for scores whose exponentials overflow, and for keys that are hidden."""
    scores = (300 + 3 * torch.randn(2, 3, length, generator=torch.Generator().manual_seed(1))).to(
        dtype
    )
    scores[0, 1, 1:] = -math.inf
    expected = scores.double().requires_grad_()
    weights = expected.softmax(-1)
    shares = softmax_(scores.clone())
    assert shares.dtype == dtype
    torch.testing.assert_close(shares.double(), weights, rtol=tolerance, atol=tolerance)
    gradient = torch.linspace(-1, 1, length, dtype=torch.float64).expand_as(weights)
    weights.backward(gradient)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(
        softmax_gradient(weights.detach(), gradient.contiguous()), expected.grad
    )


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_full_attention_are_those_of_differences(causal: bool) -> None:
    torch.manual_seed(0)
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    mask = AttentionMask(None if causal else padding, causal)
    inputs = [
        torch.randn(2, 2, 4, width, dtype=torch.float64, requires_grad=True) for width in (3, 3, 5)
    ]
    assert torch.autograd.gradcheck(
        lambda *heads: full_attention(FullAttention(), *heads, mask), inputs
    )
