"""Table 1: what is counted in the graphs of layers, and the report. Nothing here depends on a measured time."""

from __future__ import annotations

import pytest
import torch

from benchmarks import layer_graph, table1
from benchmarks.layer_graph import longest_chain, multiply_adds, path_length


def test_the_loop_of_cells_is_torchs_lstm() -> None:
    x, outputs = torch.randn(5, 8), []
    for make in (layer_graph.recurrent, layer_graph.recurrent_cells):
        torch.manual_seed(3)
        outputs.append(make(8, 1, 1)(x))
    torch.testing.assert_close(outputs[0], outputs[1])


def test_the_longest_chain_of_known_expressions() -> None:
    x = torch.ones(3, requires_grad=True)
    assert longest_chain(x * 2) == 1
    assert longest_chain((x * 2 + 1).sum() + x.exp().sum()) == 4
    y = x
    for _ in range(3000):  # shared by two operands, and deeper than Python's recursion
        y = y * y
    assert longest_chain(y) == 3000


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("self-attention", lambda n, d, k: 2 * n * n * d),
        ("recurrent", lambda n, d, k: 8 * n * d * d),
        ("convolutional", lambda n, d, k: k * n * d * d),
        ("convolutional, separable", lambda n, d, k: k * n * d + n * d * d),
    ],
)
def test_operations_in_closed_form(name: str, count: object) -> None:
    assert callable(count)
    assert multiply_adds(table1.ROWS[name].counted(16, 4, 8), 32, 16) == count(32, 16, 4)


def test_chains_and_paths_are_the_papers() -> None:
    """n = 4, 16, 64; k = 4 and r = 8."""
    found = {name: table1.graphs(row) for name, row in table1.ROWS.items()}
    chains = {name: [int(length) for length in cells[2].split(", ")] for name, cells in found.items()}
    assert {name for name, lengths in chains.items() if len(set(lengths)) == 1} == set(found) - {"recurrent"}
    first, second, third = chains["recurrent"]
    assert (third - second) == 4 * (second - first)
    assert {name: cells[4] for name, cells in found.items()} == {
        "self-attention": "1, 1, 1",
        "recurrent": "4, 16, 64",
        "convolutional": "1, 2, 3",
        "convolutional, separable": "1, 2, 3",
        "self-attention, restricted": "1, 4, 16",
    }


def test_convolutions_that_are_not_dilated_need_n_over_k_layers() -> None:
    torch.manual_seed(0)
    stack = layer_graph.stacked(lambda _: layer_graph.convolution(8, 4, 1))
    assert path_length(stack, 31, 8) == 10
