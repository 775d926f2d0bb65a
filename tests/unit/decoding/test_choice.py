from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.decoding.choice import BLOCK, drawn, topk


@given(
    st.integers(1, 40 * BLOCK),
    st.integers(1, 9),
    st.integers(1, 6),
    st.integers(0, 10**6),
)
def test_the_best_values_and_their_columns_with_many_ties(
    width: int, k: int, levels: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = -torch.randint(0, levels, (3, width), generator=generator).float()
    scores[torch.rand(scores.shape, generator=generator) < 0.1] = -torch.inf
    values, columns = topk(scores, k)
    assert torch.equal(values, scores.sort(dim=1, descending=True).values[:, :k])
    assert torch.equal(values, scores.gather(1, columns))
    assert all(len(set(row)) == len(row) for row in columns.tolist())
    assert torch.equal(topk(scores[1:2], k)[1], columns[1:2])  # other rows change nothing


@pytest.mark.parametrize("width", [7, 1000, 37000])
def test_equals_topk_where_no_values_are_equal(width: int) -> None:
    # Of the first, the last columns are best.
    rows = [torch.arange(width), *(torch.randperm(width) for _ in range(3))]
    scores = torch.stack(rows).float() / 7 - 100
    values, columns = topk(scores, 5)
    expected = scores.topk(5, dim=1)
    assert torch.equal(values, expected.values)
    assert torch.equal(columns, expected.indices)


def test_a_draw_takes_the_probabilities_of_its_row_even_where_a_diverged_model_has_none() -> None:
    p = torch.rand((3, 700), generator=torch.Generator().manual_seed(1))
    rows, random = torch.tensor([2, 0, 0, 1]), torch.rand((4, 2), dtype=torch.float64)
    assert torch.equal(drawn(p, rows, random), drawn(p[rows], torch.arange(4), random))
    assert drawn(torch.full((1, 5), torch.nan), torch.tensor([0, 0]), random[:2]).lt(5).all()


def test_a_column_without_probability_is_never_drawn() -> None:
    """Not even where the random numbers are at its boundary."""
    p = torch.zeros(1, 5 * BLOCK)
    p[0, 2 * BLOCK + 3] = 1
    assert drawn(p, torch.tensor([0]), torch.zeros(1, 2, dtype=torch.float64)) == 2 * BLOCK + 3
