"""The micro-batches that need most memory, of made-up updates. tests/faults/test_memory.py has the memory itself."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.training import memory

EIGHT_SHORT, TWO_LONG, ONE_UNEVEN = [0] * 8, [1, 1], [2]
LENGTHS = np.array([4, 15, 17]), np.array([4, 15, 1])  # of the source and the target


class Plan(SimpleNamespace):
    """Updates of one micro-batch."""

    source_lengths, target_lengths = LENGTHS

    def samples(self, count: int) -> list[tuple[int, list[list[int]]]]:
        return [(0, [TWO_LONG, EIGHT_SHORT]), (1, [ONE_UNEVEN])]

    def micro_batches(self, update: list[int], count: int) -> list[list[int]]:
        return [update]

    def padded_lengths(self, indices: Sequence[int]) -> Any:
        return np.array([lengths[indices].max() for lengths in LENGTHS])

    def target_tokens(self, indices: Sequence[int]) -> int:
        return int(self.target_lengths[indices].sum())


@pytest.mark.parametrize(
    ("packed", "chosen"),
    [(False, [EIGHT_SHORT, TWO_LONG]), (True, [EIGHT_SHORT, ONE_UNEVEN])],
)
def test_the_largest(packed: bool, chosen: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """By tokens, of which eight short sentences have 64, and by squared lengths, or in bins by the longest sentence."""
    setup: Any = SimpleNamespace(
        plan=Plan(packed=packed), corpus=None, world=SimpleNamespace(device=torch.device("cpu"))
    )
    monkeypatch.setattr(memory, "text_of", lambda setup, epoch, sentences: sentences)
    monkeypatch.setattr(memory, "read_batch", lambda pairs, indices, device, packed: pairs)
    assert memory.largest(setup, 1) == chosen
