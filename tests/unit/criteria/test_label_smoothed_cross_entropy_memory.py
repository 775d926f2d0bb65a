"""The memory that the loss says it takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.criteria.label_smoothed_cross_entropy import (
    CHUNK,
    LabelSmoothedCrossEntropy,
    LabelSmoothingConfig,
    smoothed_cross_entropy,
)

V, d = 40, 8


class Model:
    output_weight = torch.zeros(V, d)


def memory(tokens: int, on_gpu: bool = False) -> int:
    model: Any = Model()
    return LabelSmoothedCrossEntropy(LabelSmoothingConfig()).training_memory(model, tokens, on_gpu=on_gpu)


def test_what_autograd_keeps_is_in_it() -> None:
    """Both gradients; besides them a chunk of logits and its exponentials, and the weight's gradient once more."""
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.untyped_storage().nbytes())
        return tensor

    features, weight = torch.randn(30, d, requires_grad=True), torch.randn(V, d, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        smoothed_cross_entropy(features, weight, torch.ones(30, dtype=torch.int64), 0.1)
    assert memory(30) == sum(kept) + 4 * (2 * 30 * V + V * d)


@pytest.mark.parametrize(("on_gpu", "device"), [(False, "cpu"), (True, "cuda")])
def test_logits_are_those_of_one_chunk(on_gpu: bool, device: str) -> None:
    rows = CHUNK[device]
    assert memory(rows + 100, on_gpu) - memory(rows, on_gpu) == 4 * 100 * d
    assert memory(rows, on_gpu) - memory(rows - 100, on_gpu) == 4 * 100 * (d + 2 * V)
