"""Rows of a tensor in other places, with a gradient that is moved back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _Move(torch.autograd.Function):
    """Rows in other places. On a GPU, the gradient of indexing is not the same in each run."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, move: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.back = back
        return move(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back(gradients[0]), None, None


def moved(
    rows: Tensor, move: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return `move(rows)`, whose gradient `back` moves."""
    result: Tensor = _Move.apply(rows, move, back)  # type: ignore[no-untyped-call]
    return result
