"""Layers of a GPU, on a CPU."""

from __future__ import annotations

import torch

from nmt_cli.fast.cuda.device import Fast
from nmt_cli.layers.embedding import SinusoidalPositions


def test_a_table_is_kept_when_it_has_grown() -> None:
    """A CUDA graph of shorter sentences reads the table at the address that it had."""
    positions = SinusoidalPositions(4)
    Fast(torch.device("cuda")).fit(positions)
    address = positions(0, 10).data_ptr()
    positions(0, 1000)
    assert address in [table.data_ptr() for table in vars(positions)["former"]]
