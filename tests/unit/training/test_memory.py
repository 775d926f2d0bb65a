"""The micro-batches that need most memory.

tests/faults/test_memory.py has the memory itself.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nmt_cli.data.batching import collate
from nmt_cli.training import memory

EIGHT_SHORT, TWO_LONG, ONE_UNEVEN = [0] * 8, [1, 1], [2]
LENGTHS = np.array([4, 15, 17]), np.array([4, 15, 1])  # of the source and the target


class Plan:
    """Updates of one micro-batch."""

    source_lengths, target_lengths = LENGTHS

    def samples(self, count: int) -> list[tuple[int, list[Any]]]:
        return [(0, [np.array(TWO_LONG), np.array(EIGHT_SHORT)]), (1, [np.array(ONE_UNEVEN)])]


@pytest.mark.parametrize(
    ("packed", "chosen"),
    [(False, [EIGHT_SHORT, TWO_LONG]), (True, [EIGHT_SHORT, ONE_UNEVEN])],
)
def test_the_largest(packed: bool, chosen: list[list[int]]) -> None:
    """By tokens, of which eight short sentences have 64, by squared lengths, or by bins."""
    updates: Any = SimpleNamespace(
        plan=Plan(),
        packed=packed,
        text=lambda epoch, sentences: sentences,
        load=lambda pairs, indices: pairs.tolist(),
    )
    assert memory.largest(updates, 1) == chosen


def test_the_largest_micro_batch_is_named() -> None:
    """By its tokens with padding, EOS included."""
    batches = [collate([[5] * 9], [[5] * 9]), collate([[5] * 6] * 3, [[5] * 4] * 3)]
    for order in (batches, batches[::-1]):
        message = str(memory.out_of_memory(order, micro_batches=2))
        assert "3 sentences, 7 source and 5 target tokens" in message
