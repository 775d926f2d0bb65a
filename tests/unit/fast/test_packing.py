"""Rows of real tokens, against indexing by a mask, and its gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.fast.packing import MULTIPLE, Packing


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12), more=st.integers(0, 3))
def test_packing_and_unpacking(lengths: list[int], more: int) -> None:
    real = torch.arange(max(lengths) + more) < torch.tensor(lengths)[:, None]
    packing = Packing.of(real)
    padded = torch.randn(*real.shape, 3, dtype=torch.float64, requires_grad=True)
    rows = packing.pack(padded)
    n = sum(lengths)
    assert len(rows) % MULTIPLE == 0
    assert 0 <= len(rows) - n < MULTIPLE
    assert torch.equal(rows[:n], padded[real])
    assert not rows[n:].any()
    assert torch.equal(packing.unpack(rows), padded * real[..., None])


def test_gradients() -> None:
    """What rows of zeros and padding would add is left out."""
    real = torch.tensor([[True, True, False], [True, False, False]])
    packing = Packing.of(real)
    padded = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(MULTIPLE, 2, dtype=torch.float64)
    rows[3:] = 0
    rows.requires_grad_()
    assert torch.autograd.gradcheck(packing.pack, padded)
    (gradient,) = torch.autograd.grad(packing.unpack(rows).square().sum(), rows)
    assert torch.equal(gradient, 2 * rows.detach())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_types_are_kept(dtype: torch.dtype) -> None:
    packing = Packing.of(torch.ones(2, 5, dtype=torch.bool))
    x = torch.randn(2, 5, 4).to(dtype)
    assert packing.unpack(packing.pack(x)).dtype == dtype


def test_ids_and_positions_of_rows() -> None:
    packing = Packing.of(torch.arange(4) < torch.tensor([[2], [3]]))
    ids = packing.ids(torch.tensor([[5, 6, 0, 0], [7, 8, 9, 0]]))
    assert ids.tolist() == [5, 6, 7, 8, 9] + [0] * (MULTIPLE - 5)
    assert packing.positions.tolist() == [0, 1, 0, 1, 2] + [0] * (MULTIPLE - 5)
