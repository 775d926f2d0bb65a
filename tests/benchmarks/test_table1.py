"""Table 1: what is counted in the graphs of layers. Nothing here depends on a measured time."""

from __future__ import annotations

import pytest
import torch

from benchmarks import table1
from benchmarks.table1 import longest_chain, multiply_adds, path_length


def test_the_loop_of_cells_is_torchs_lstm() -> None:
    x, outputs = torch.randn(5, 8), []
    for make in (table1.recurrent, table1.recurrent_cells):
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
    layer = table1.recurrent_cells if name == "recurrent" else table1.ROWS[name].layer
    assert multiply_adds(layer(16, 4, 8), 32, 16) == count(32, 16, 4)


def test_chains_and_paths_are_the_papers() -> None:
    """n = 4, 16, 64; k = 4 and r = 8."""
    found = {name: table1.graphs(name) for name in table1.ROWS}
    first, second, third = found["recurrent"][0]
    assert (third - second) == 4 * (second - first)
    assert all(len(set(chains)) == 1 for name, (chains, _) in found.items() if name != "recurrent")
    assert {name: paths for name, (_, paths) in found.items()} == {
        "self-attention": [1, 1, 1],
        "recurrent": [4, 16, 64],
        "convolutional": [1, 2, 3],
        "convolutional, separable": [1, 2, 3],
        "self-attention, restricted": [1, 4, 16],
    }


def test_convolutions_that_are_not_dilated_need_n_over_k_layers() -> None:
    torch.manual_seed(0)
    stack = table1.stacked(lambda _: table1.convolution(8, 4, 1))
    assert path_length(stack, 31, 8) == 10
