"""Every registered criterion: sums over real tokens, independent of padding, order and batches.

A loss that is drawn at random is so in evaluation mode, in which it draws nothing; in training mode
the generator's state determines it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli import registry
from nmt_cli.interfaces import PAD, AddsLoss, Batch, Loss
from nmt_cli.training.gradients import Objective

Gradients = dict[str, Tensor]


class Measure:
    """The loss of a batch, and its gradients, by one model."""

    def __init__(self, criterion: Any, model: Any) -> None:
        self.criterion, self.model = criterion, model

    def __call__(self, batch: Batch) -> tuple[Loss, Gradients]:
        self.model.zero_grad()
        loss = self.criterion(self.model, batch)
        loss.total.backward()
        return loss, {
            name: parameter.grad.clone() for name, parameter in self.model.named_parameters()
        }


@pytest.fixture(params=registry.names("criterion"))
def measure(
    request: pytest.FixtureRequest, make_model: Callable[..., Any], make_config: Callable[..., Any]
) -> Measure:
    """In training mode."""
    return Measure(registry.build(make_config("criterion", request.param)), make_model())


@pytest.fixture
def additive(measure: Measure, make_batch: Callable[..., Batch]) -> Measure:
    """In evaluation mode if the criterion draws in training mode."""
    state = torch.get_rng_state()
    measure(make_batch([0]))
    measure.model.train(torch.equal(torch.get_rng_state(), state))
    return measure


def same(left: tuple[Loss, Gradients], right: tuple[Loss, Gradients]) -> None:
    assert left[0].num_tokens == right[0].num_tokens
    for one, other in ((left[0].total, right[0].total), (left[0].nll, right[0].nll)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    for name, gradient in left[1].items():
        scale = gradient.abs().max().item()
        torch.testing.assert_close(gradient, right[1][name], rtol=1e-4, atol=1e-5 * max(1.0, scale))


def added(parts: list[tuple[Loss, Gradients]]) -> tuple[Loss, Gradients]:
    losses = [loss for loss, _ in parts]
    total = sum((loss.total for loss in losses), torch.tensor(0.0))
    nll = sum((loss.nll for loss in losses), torch.tensor(0.0))
    names = parts[0][1]
    gradients = {
        name: sum((g[name] for _, g in parts), torch.zeros_like(names[name])) for name in names
    }
    return Loss(total, nll, sum(loss.num_tokens for loss in losses)), gradients


def test_sentences_add_up(additive: Measure, make_batch: Callable[..., Batch]) -> None:
    """In any batch, order and padding. A repeated sentence counts twice."""
    whole = additive(make_batch([0, 1, 2]))
    same(additive(make_batch([2, 0, 1], more_source=5, more_target=8)), whole)
    first, second, third = (additive(make_batch([n])) for n in range(3))
    same(added([first, second, third]), whole)
    same(added([first, first]), additive(make_batch([0, 0])))


def test_nll_is_the_likelihood_of_the_real_tokens(
    measure: Measure, make_batch: Callable[..., Batch]
) -> None:
    """The perplexity is computed from it, with any loss."""
    batch = make_batch()
    loss, _ = measure(batch)
    with torch.no_grad():
        log_p = measure.model(batch.source, batch.target_in).log_softmax(-1)
    of_targets = log_p.gather(2, batch.target_out[:, :, None]).squeeze(2)
    expected = -of_targets[batch.target_out != PAD].sum()
    assert loss.nll.item() == pytest.approx(expected.item(), rel=1e-5)
    assert loss.num_tokens == batch.num_tokens == 3 + 15 + 5


def test_validation_computes_the_same_loss_without_gradients(
    measure: Measure, make_batch: Callable[..., Batch]
) -> None:
    """And draws nothing."""
    batch, state = make_batch(), torch.get_rng_state()
    measure.model.eval()
    training, _ = measure(batch)
    assert torch.equal(torch.get_rng_state(), state)
    assert training.total.requires_grad
    assert not training.nll.requires_grad
    with torch.no_grad():
        validation = measure.criterion(measure.model, batch)
    assert not validation.total.requires_grad
    assert (validation.total.item(), validation.nll.item()) == (
        training.total.item(),
        training.nll.item(),
    )


def test_the_generator_determines_the_training(
    measure: Measure, make_batch: Callable[..., Batch]
) -> None:
    """So a resumed run computes the same bits."""
    losses = []
    for _ in range(2):
        torch.manual_seed(5)
        losses.append(measure(make_batch([0])))
    assert losses[0][0].total.item() == losses[1][0].total.item()
    assert all(torch.equal(gradient, losses[1][1][name]) for name, gradient in losses[0][1].items())


@pytest.mark.parametrize("name", registry.names("model"))
def test_it_trains_every_model(
    measure: Measure, make_model: Callable[..., Any], make_batch: Callable[..., Batch], name: str
) -> None:
    """The gradient reaches every weight, and the model is left in training mode.

    The weights of a module that adds a term of its own to the loss may depend on that term alone.
    """
    model = make_model(name)
    adding = [module for module in model.modules() if isinstance(module, AddsLoss)]
    elsewhere = {parameter for module in adding for parameter in module.parameters()}
    torch.manual_seed(5)
    # On CPUs without AVX-512, oneDNN has no recurrent layers in bfloat16.
    precision = "bfloat16" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "float32"
    total, _ = Objective(model, measure.criterion, precision)(make_batch())
    total.backward()
    assert all(module.training for module in model.modules())
    for parameter in set(model.parameters()) - elsewhere:
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.grad.any()


def test_descent_on_it_makes_the_targets_likelier(
    additive: Measure, make_batch: Callable[..., Batch]
) -> None:
    batch = make_batch()
    before, gradients = additive(batch)
    with torch.no_grad():
        for name, parameter in additive.model.named_parameters():
            parameter -= 1e-3 * gradients[name]
    after, _ = additive(batch)
    assert after.total < before.total
    assert after.nll < before.nll
