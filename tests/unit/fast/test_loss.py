"""The chunked loss against PyTorch's, across the borders of chunks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nmt_cli.criteria.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropy,
    LabelSmoothingConfig,
)
from nmt_cli.fast import loss as module
from nmt_cli.fast.loss import ChunkedCrossEntropy, fit_criterion
from nmt_cli.interfaces import BOS, EOS, PAD, Batch

SMALL = ChunkedCrossEntropy(chunk=4, block=26)  # whole chunks and partial ones
LARGE = ChunkedCrossEntropy(chunk=1024, block=1 << 19)


def drawn(tokens: int, V: int = 13, d: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(tokens)
    hidden = torch.randn(tokens, d, generator=random, requires_grad=True)
    weight = torch.randn(V, d, generator=random, requires_grad=True)
    return hidden, weight, torch.randint(0, V, (tokens,), generator=random)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("tokens", [1, 4, 5, 11])
@pytest.mark.parametrize("biased", [False, True])
def test_it_is_pytorchs_cross_entropy(tokens: int, epsilon: float, biased: bool) -> None:
    """With chunks of 4 rows, whole and partial, and a loss that is scaled afterwards."""
    hidden, weight, targets = drawn(tokens)
    bias = torch.linspace(-2, 3, len(weight), requires_grad=True) if biased else None
    learned = [hidden, weight] if bias is None else [hidden, weight, bias]
    total, nll = SMALL(hidden, weight, targets, epsilon, bias=bias)
    logits = F.linear(*learned)
    expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=epsilon)
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(nll, F.cross_entropy(logits, targets, reduction="sum"))
    gradients = torch.autograd.grad(total / 7, learned)
    expected_gradients = torch.autograd.grad(expected / 7, learned)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tokens", [1, 3, 6])
def test_rows_after_the_tokens_do_not_count(tokens: int) -> None:
    """Neither in the loss nor in a gradient, in whatever chunk they are."""
    hidden, weight, targets = drawn(11)
    losses = [SMALL(rows, weight, targets[:tokens], 0.1) for rows in (hidden, hidden[:tokens])]
    torch.testing.assert_close(losses[0], losses[1])
    gradients, expected = (torch.autograd.grad(total, [hidden, weight]) for total, _ in losses)
    torch.testing.assert_close(gradients, expected)
    assert not gradients[0][tokens:].any()


def test_a_frozen_weight_costs_no_product(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, targets = drawn(7)
    (expected,) = torch.autograd.grad(SMALL(hidden, weight, targets, 0.1)[0], [hidden])
    monkeypatch.setattr(
        module, "_plus_product", lambda *_: pytest.fail("the weight's gradient is computed")
    )
    total, _ = SMALL(hidden, weight.detach(), targets, 0.1)
    torch.testing.assert_close(torch.autograd.grad(total, [hidden]), (expected,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_compiled_loss_is_the_loss(dtype: torch.dtype) -> None:
    logits, targets = (3 * torch.randn(7, 40)).to(dtype), torch.randint(0, 40, (7,))
    fused, expected = logits.clone(), logits.clone()
    values = (
        module.to_gradient_for_compiler(fused, targets, 0.1),
        module.to_gradient(expected, targets, 0.1),
    )
    torch.testing.assert_close(values[0], values[1])
    torch.testing.assert_close(fused, expected)


class ProductTypes(TorchDispatchMode):
    """Records the types of matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(
        self, operation: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        if "mm" in operation.name():
            self.seen |= {argument.dtype for argument in arguments if isinstance(argument, Tensor)}
        return operation(*arguments, **(keywords or {}))


def test_under_autocast_every_product_is_in_low_precision() -> None:
    """Also if the hidden states are float32, as after layer normalisation.

    Sums and gradients are float32.
    """
    hidden, weight, targets = drawn(11)
    expected = SMALL(hidden, weight, targets, 0.1)[0]
    with ProductTypes() as products, torch.autocast("cpu", torch.bfloat16):
        total = SMALL(hidden, weight, targets, 0.1)[0]
    assert products.seen == {torch.bfloat16}
    assert total.dtype == torch.float32
    torch.testing.assert_close(total, expected, rtol=1e-2, atol=0)
    fused_gradients, expected_gradients = (
        torch.autograd.grad(loss, [hidden, weight]) for loss in (total, expected)
    )
    for mine, reference in zip(fused_gradients, expected_gradients, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, reference, rtol=0.05, atol=0.02)


def test_extreme_logits_stay_finite() -> None:
    hidden = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.5]], requires_grad=True)
    total, _ = LARGE(hidden, weight, torch.tensor([0, 1]), 0.1)
    gradients = torch.autograd.grad(total, [hidden, weight])
    assert total.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)


class Fixed:
    """A model with given hidden states."""

    def __init__(self, hidden: Tensor, weight: Tensor) -> None:
        self.fixed, self.output_weight, self.output_bias = hidden, weight, None

    def decoder_output(self, source: Tensor, target_in: Tensor) -> Tensor:
        return self.fixed


def test_padding_is_left_out_before_the_projection() -> None:
    """Hidden states of padding may be NaN."""
    hidden, weight, _ = drawn(6)
    poisoned = hidden.detach().view(2, 3, 5).clone()
    poisoned[1, 1:] = float("nan")
    target_out = torch.tensor([[7, 8, EOS], [EOS, PAD, PAD]])
    target_in = torch.tensor([[BOS, 7, 8], [BOS, PAD, PAD]])
    batch = Batch(target_out, target_in, target_out, 4)
    model: Any = Fixed(poisoned, weight)
    criterion = LabelSmoothedCrossEntropy(LabelSmoothingConfig())
    fit_criterion(criterion, SMALL)
    loss = criterion(model, batch)
    expected = F.cross_entropy(
        poisoned[target_out != PAD] @ weight.T,
        target_out[target_out != PAD],
        reduction="sum",
        label_smoothing=0.1,
    )
    torch.testing.assert_close(loss.total, expected)
    assert loss.num_tokens == 4
    (gradient,) = torch.autograd.grad(loss.total, weight)
    assert gradient.isfinite().all()


def test_under_autocast_the_loss_is_summed_in_float32() -> None:
    """Hidden states and weights are bfloat16 numbers, so only the logits are rounded."""
    random = torch.Generator().manual_seed(1)
    hidden, weight = (
        (torch.randn(n, 64, generator=random) + 0.2).bfloat16().float() for n in (3000, 500)
    )
    targets = torch.randint(0, 500, (3000,), generator=random)
    expected = F.cross_entropy(
        hidden.double() @ weight.double().T, targets, reduction="sum", label_smoothing=0.5
    )
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = LARGE(hidden, weight, targets, 0.5)
    torch.testing.assert_close(total.double(), expected, rtol=5e-5, atol=0)


@pytest.mark.parametrize("biased", [False, True])
def test_rows_that_are_not_real_change_nothing(biased: bool) -> None:
    """As without them: the loss, the negative log-likelihood and every gradient."""
    hidden, weight, targets = drawn(9)
    bias = torch.randn(len(weight), requires_grad=True) if biased else None
    inputs = [hidden, weight, *([bias] if bias is not None else [])]
    real = torch.arange(9) % 3 != 1
    targets = targets.clamp(min=1)
    masked = ChunkedCrossEntropy(4, 26, takes_padding=True)(
        hidden, weight, targets * real, 0.1, bias
    )
    expected = SMALL(hidden[real], weight, targets[real], 0.1, bias)
    torch.testing.assert_close(masked, expected)
    gradients, expected_gradients = (
        torch.autograd.grad(total, inputs) for total, _ in (masked, expected)
    )
    torch.testing.assert_close(gradients, expected_gradients)
