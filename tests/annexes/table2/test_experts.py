"""The mixture of experts, against the equations of Shazeer et al.

2017 for one token and expert at a time.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from nmt_cli.annexes.table2.experts import (
    Experts,
    exchanged,
    expected_load,
    grouped_product,
    squared_variation,
)
from nmt_cli.annexes.table2.settings import ExpertsConfig
from nmt_cli.device import autocast
from nmt_cli.errors import UsageError

N, D, FF, EXPERTS = 7, 5, 6, 4


def small_experts(per_token: int = 2, **fields: Any) -> Experts:
    """A mixture whose gates are not equal."""
    torch.manual_seed(0)
    fields = {"importance_loss": 0.3, "load_loss": 0.7} | fields
    layer = Experts(D, FF, ExpertsConfig(EXPERTS, per_token, **fields))
    with torch.no_grad():
        for linear in (layer.gate, layer.noise):
            linear.weight.normal_()
    return layer


def mixture(layer: Experts, x: Tensor, scores: Tensor) -> Tensor:
    """Equations 1, 3 and 5: the output for one token [d] with these H(x) [n]."""
    best = sorted(range(EXPERTS), key=lambda i: -scores[i].item())[: layer.config.experts_per_token]
    scores = scores.detach()
    total = sum(math.exp(scores[i]) for i in best)
    outputs = [layer.outer[i] @ torch.relu(layer.inner[i] @ x) for i in best]
    return sum(
        (math.exp(scores[i]) / total * output for i, output in zip(best, outputs, strict=True)),
        torch.zeros(D),
    )


@pytest.mark.parametrize("per_token", [2, 3, EXPERTS])
def test_evaluation_has_no_noise(per_token: int) -> None:
    layer, x = small_experts(per_token).eval(), torch.randn(N, D)
    expected = torch.stack([mixture(layer, row, layer.gate.weight @ row) for row in x])
    torch.testing.assert_close(layer(x), expected)


def test_training_has_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equation 4."""
    layer, x, noise = small_experts(), torch.randn(N, D), torch.randn(N, EXPERTS)
    monkeypatch.setattr(torch, "randn_like", lambda _: noise)
    scores = x @ layer.gate.weight.T + noise * (1 + (x @ layer.noise.weight.T).exp()).log()
    expected = torch.stack([mixture(layer, *row) for row in zip(x, scores, strict=True)])
    torch.testing.assert_close(layer(x), expected)


def test_the_load_is_a_sum_of_normal_probabilities() -> None:
    """Equations 8 to 10."""
    clean, deviation, k = torch.randn(N, EXPERTS), torch.rand(N, EXPERTS) + 0.1, 2
    noisy = clean + torch.randn(N, EXPERTS) * deviation
    expected = [0.0] * EXPERTS
    for x in range(N):
        for i in range(EXPERTS):
            others = sorted((noisy[x, j].item() for j in range(EXPERTS) if j != i), reverse=True)
            z = (clean[x, i].item() - others[k - 1]) / deviation[x, i].item()
            expected[i] += statistics.NormalDist().cdf(z)
    torch.testing.assert_close(expected_load(clean, noisy, deviation, k), torch.tensor(expected))


@pytest.mark.parametrize(("per_token", "load_weight"), [(2, 0.7), (2, 0.0), (EXPERTS, 0.7)])
def test_the_loss_is_that_of_importance_and_load(
    per_token: int, load_weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equations 6, 7 and 11. Each expert has each token if there are no more."""
    layer = small_experts(per_token, load_loss=load_weight)
    x = torch.randn(N, D)
    noise = torch.randn(N, EXPERTS)
    monkeypatch.setattr(torch, "randn_like", lambda _: noise)
    chosen, gates = layer.choose(x)
    importance = torch.zeros(EXPERTS)
    for token in range(N):
        for i, gate in zip(chosen[token], gates[token], strict=True):
            importance[i] += gate
    expected = 0.3 * squared_variation(importance)
    if load_weight and per_token < EXPERTS:
        clean, deviation = layer.gate(x), F.softplus(layer.noise(x))
        expected += load_weight * squared_variation(
            expected_load(clean, clean + noise * deviation, deviation, 2)
        )
    torch.testing.assert_close(layer.added_loss(), expected)


def test_gradients_are_finite_however_small_the_noise_becomes() -> None:
    layer, x = small_experts(), torch.randn(N, D)
    with torch.no_grad():
        layer.noise.weight[:] = torch.eye(D)[0]
    x[:, 0] = -50.0
    layer.choose(x)
    layer.added_loss().backward()
    for linear in (layer.gate, layer.noise):
        assert linear.weight.grad is not None
        assert linear.weight.grad.isfinite().all()


def test_new_gates_are_equal_and_noise_spreads_the_tokens() -> None:
    """Appendix A: both matrices begin with zeros."""
    torch.manual_seed(0)
    layer = Experts(D, FF, ExpertsConfig(EXPERTS, 2, 1.0, 1.0))
    chosen, _ = layer.choose(torch.randn(4000, D))
    shares = chosen.flatten().bincount(minlength=EXPERTS) / chosen.numel()
    torch.testing.assert_close(shares, torch.full((EXPERTS,), 0.25), atol=0.02, rtol=0)
    assert layer.added_loss().item() < 0.01


def test_gradients_are_those_of_the_plain_sum() -> None:
    """Also where no token chose an expert: zeros, which sums over processes need."""
    layer, x = small_experts().eval(), torch.randn(2, D, dtype=torch.float64, requires_grad=True)
    layer.double().choose = lambda rows: (
        torch.tensor([[0, 2]] * 2),
        layer.gate(rows)[:, [0, 2]].softmax(-1),
    )  # type: ignore[method-assign]
    assert torch.autograd.gradcheck(layer, (x,))
    layer(x).sum().backward()
    for weight in (layer.inner, layer.outer):
        assert weight.grad is not None
        assert [bool(gradient.any()) for gradient in weight.grad] == [True, False, True, False]


@pytest.mark.parametrize("per_token", [1, 5])
def test_a_number_of_experts_that_cannot_be(per_token: int) -> None:
    with pytest.raises(UsageError, match="at least 2 and at most --experts 4"):
        small_experts(per_token)


def test_nothing_is_added_for_a_pass_in_evaluation_mode() -> None:
    """A criterion may choose that mode for its own pass."""
    layer = small_experts().eval()
    layer(torch.ones(N, D))
    assert layer.added_loss() == 0


def test_the_host_waits_for_no_number_in_training() -> None:
    """Fake tensors have no numbers: a function that reads one raises."""
    with FakeTensorMode(), torch.autocast("cpu", torch.bfloat16):
        layer, x = Experts(8, 16, ExpertsConfig(EXPERTS)), torch.randn(N, 8, requires_grad=True)
        (layer(x).sum() + layer.added_loss()).backward()
        with pytest.raises(DataDependentOutputException), torch.no_grad():
            layer(x)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("ends", [[3, 3, 7], [0, 7, 7]])
def test_products_of_groups_are_those_of_each_group(ends: list[int], precision: str) -> None:
    """To the last bit on a CPU, with gradients.

    Also for widths that torch's grouped product refuses.
    """
    for inputs, outputs in ((8, 16), (5, 6)):
        rows, weights = (
            torch.randn(shape, requires_grad=True) for shape in ((7, inputs), (3, outputs, inputs))
        )
        parts = zip(rows.tensor_split(ends[:-1]), weights, strict=True)
        with autocast(rows.device, precision):
            products = grouped_product(rows, weights, torch.tensor(ends, dtype=torch.int32))
            expected = torch.cat([F.linear(part, weight) for part, weight in parts])
        gradients = [
            torch.autograd.grad(y, (rows, weights), torch.ones_like(y))
            for y in (products, expected)
        ]
        assert products.dtype == getattr(torch, precision)
        assert all(
            torch.equal(a, b)
            for a, b in zip((products, *gradients[0]), (expected, *gradients[1]), strict=True)
        )


def of_groups(weights: Tensor, counts: Tensor) -> tuple[Tensor, ...]:
    """A rank's rows, outputs and gradients of rows and weights, where all ranks have all groups."""
    rows = torch.arange(counts.sum() * 8.0).view(-1, 8).cos().requires_grad_()
    outputs = grouped_product(rows, weights, counts.cumsum(0).int())
    return rows, outputs, *torch.autograd.grad(outputs.square().sum(), (rows, weights))


def rank_of_exchange(rank: int, size: int, store: Path, precision: str) -> None:
    """Compares a rank's exchange with the products of all groups.

    A rank may have no rows, and a group none.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    whole = torch.arange(8 * 8 * 8.0).view(8, 8, 8).sin().requires_grad_()
    counts = torch.tensor(
        [[0, 3, 1, 0, 2, 0, 0, 5], [0] * 8, [0, 1, 0, 0, 0, 0, 1, 0], [0, 7, 0, 2, 0, 0, 2, 1]]
    )
    with autocast(whole.device, precision):
        all_ranks = [of_groups(whole, ends_of_rank) for ends_of_rank in counts[:size]]
        rows, expected, of_rows, _ = all_ranks[rank]
        own_weights = whole.detach().chunk(size)[rank].requires_grad_()
        ends = counts[rank].cumsum(0).int()
        outputs = exchanged(
            rows, ends, size, lambda rows, ends: grouped_product(rows, own_weights, ends)
        )
        gradients = torch.autograd.grad(outputs.square().sum(), (rows, own_weights))
    assert outputs.dtype == expected.dtype
    assert torch.equal(outputs, expected)
    assert torch.equal(gradients[0], of_rows)
    total = torch.stack([ends_of_rank[3] for ends_of_rank in all_ranks]).sum(0).chunk(size)[rank]
    tolerance = {"float32": 1e-6, "bfloat16": 0.02}[precision]
    torch.testing.assert_close(gradients[1], total, rtol=tolerance, atol=tolerance)
    dist.destroy_process_group()


@pytest.mark.parametrize(("size", "precision"), [(2, "float32"), (4, "bfloat16")])
def test_groups_of_several_ranks_are_those_of_one(
    size: int, precision: str, tmp_path: Path
) -> None:
    """The outputs and the gradients of rows are the same to the last bit.

    Those of weights add up over the ranks.
    """
    fork = multiprocessing.get_context("fork")  # importing torch takes seconds
    arguments = [(rank, size, tmp_path / "store", precision) for rank in range(size)]
    ranks = [
        fork.Process(target=rank_of_exchange, args=rank_arguments) for rank_arguments in arguments
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
        assert process.exitcode == 0
