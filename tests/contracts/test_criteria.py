"""Every registered criterion: sums over real tokens, independent of padding, order and batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli import registry
from nmt_cli.interfaces import PAD, Batch, Loss

Gradients = dict[str, Tensor]


@pytest.fixture(params=registry.names("criterion"))
def measure(
    request: pytest.FixtureRequest, make_model: Callable[..., Any], make_config: Callable[..., Any]
) -> Callable[[Batch], tuple[Loss, Gradients]]:
    """The loss of a batch, and its gradients, by one model."""
    criterion = registry.build(make_config("criterion", request.param))
    model = make_model()

    def loss_and_gradients(batch: Batch) -> tuple[Loss, Gradients]:
        model.zero_grad()
        loss = criterion(model, batch)
        loss.total.backward()
        return loss, {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    loss_and_gradients.model, loss_and_gradients.criterion = model, criterion  # type: ignore[attr-defined]
    return loss_and_gradients


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
    gradients = {name: sum((g[name] for _, g in parts), torch.zeros_like(names[name])) for name in names}
    return Loss(total, nll, sum(loss.num_tokens for loss in losses)), gradients


def test_parts_add_up_to_the_whole(measure: Any, make_batch: Callable[..., Batch]) -> None:
    whole = measure(make_batch([0, 1, 2]))
    same(added([measure(make_batch([0, 1])), measure(make_batch([2]))]), whole)
    same(added([measure(make_batch([n])) for n in range(3)]), whole)


def test_padding_changes_nothing(measure: Any, make_batch: Callable[..., Batch]) -> None:
    same(measure(make_batch(more_source=5, more_target=8)), measure(make_batch()))


def test_order_changes_nothing(measure: Any, make_batch: Callable[..., Batch]) -> None:
    same(measure(make_batch([2, 0, 1])), measure(make_batch([0, 1, 2])))


def test_a_repeated_sentence_counts_twice(measure: Any, make_batch: Callable[..., Batch]) -> None:
    once, twice = measure(make_batch([0])), measure(make_batch([0, 0]))
    same(added([once, once]), twice)
    assert twice[0].num_tokens == 6


def test_nll_is_the_likelihood_of_the_real_tokens(measure: Any, make_batch: Callable[..., Batch]) -> None:
    """The perplexity is computed from it, with any loss."""
    batch = make_batch()
    loss, _ = measure(batch)
    with torch.no_grad():
        log_p = measure.model(batch.source, batch.target_in).log_softmax(-1)
    of_targets = log_p.gather(2, batch.target_out[:, :, None]).squeeze(2)
    expected = -of_targets[batch.target_out != PAD].sum()
    assert loss.nll.item() == pytest.approx(expected.item(), rel=1e-5)
    assert loss.num_tokens == batch.num_tokens == 3 + 15 + 5


def test_validation_computes_the_same_loss_without_gradients(measure: Any, make_batch: Callable[..., Batch]) -> None:
    batch = make_batch()
    training, _ = measure(batch)
    assert training.total.requires_grad
    assert not training.nll.requires_grad
    with torch.no_grad():
        validation = measure.criterion(measure.model, batch)
    assert not validation.total.requires_grad
    assert (validation.total.item(), validation.nll.item()) == (training.total.item(), training.nll.item())


def test_descent_on_it_makes_the_targets_likelier(measure: Any, make_batch: Callable[..., Batch]) -> None:
    batch = make_batch()
    before, gradients = measure(batch)
    with torch.no_grad():
        for name, parameter in measure.model.named_parameters():
            parameter -= 1e-3 * gradients[name]
    after, _ = measure(batch)
    assert after.total < before.total
    assert after.nll < before.nll
