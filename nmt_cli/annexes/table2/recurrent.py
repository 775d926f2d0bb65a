"""LSTM layers over padded sentences, and one step at a time.

Letters: B sentences, T positions, N hypotheses, d width of the output, h width of the cell.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt_cli.device import autocast


class LSTMState(NamedTuple):
    """The state of a layer between two positions."""

    output: Tensor  # [N, d]
    cell: Tensor  # [N, h]


def states_of_layers(tensors: tuple[Tensor, ...]) -> list[LSTMState]:
    """Return the states of the layers whose outputs and cells follow each other in `tensors`."""
    return [
        LSTMState(output, cell) for output, cell in zip(tensors[::2], tensors[1::2], strict=True)
    ]


class LSTM(nn.Module):
    """One layer of `torch.nn.LSTM`, whose initial state is zero.

    Args:
        inputs: width of the input.
        width: d.
        hidden: h, if the output is projected from there to d (Sak et al. 2014).
    """

    def __init__(self, inputs: int, width: int, hidden: int | None = None) -> None:
        super().__init__()
        warnings.filterwarnings(
            "ignore", message="LSTM with projections is not supported with oneDNN"
        )
        if hidden is None or hidden == width:
            self.cells = nn.LSTM(inputs, width, batch_first=True)
        else:
            self.cells = nn.LSTM(inputs, hidden, batch_first=True, proj_size=width)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[B, T, inputs] -> [B, T, d], from left to right, or from right to left with `lengths`.

        Padding is on the right and changes nothing before it.

        Args:
            lengths: the real positions of each sentence: [B].
        """
        if lengths is None:
            outputs, _ = self._run(x)
            return outputs
        outputs, _ = self._run(reversed_in_time(x, lengths))
        return reversed_in_time(outputs, lengths)

    def zeros(self, x: Tensor) -> LSTMState:
        """Return the initial state for the rows of `x` [N, ...]."""
        rows = len(x)
        hidden = self.cells.hidden_size
        width = self.cells.proj_size or hidden
        return LSTMState(x.new_zeros(rows, width), x.new_zeros(rows, hidden))

    def resume(self, x: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """Return the outputs [N, T, d] and the state after the next inputs `x` [N, T, inputs]."""
        if x.size(1) > 1:
            return self._run(x, state)
        state = self.step(x[:, 0], state)
        return state.output[:, None], state

    def step(self, x: Tensor, state: LSTMState) -> LSTMState:
        """Return the state after the next input `x` [N, inputs]."""
        if self.cells.proj_size:
            _, state = self._run(x[:, None], state)
            return state
        # The cell alone takes a quarter of the time of a layer with one position.
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [self.cells.get_parameter(name) for name in names]
        return LSTMState(*torch.lstm_cell(x, state, *weights))

    def _run(self, x: Tensor, state: LSTMState | None = None) -> tuple[Tensor, LSTMState]:
        # On a GPU autocast would lower it to float16, whatever its type, and float16 needs a scaled
        # loss. oneDNN has no LSTM in bfloat16 for CPUs without AVX-512.
        in_float32 = x.is_cuda or (x.is_cpu and not torch.ops.mkldnn._is_mkldnn_bf16_supported())
        if in_float32:
            dtype = torch.float32
            precision = autocast(x.device, "float32")
        else:
            dtype = x.dtype
            precision = contextlib.nullcontext()
        hx = None
        if state is not None:  # PyTorch's state begins with a dimension of layers
            hx = (state.output.to(dtype)[None], state.cell.to(dtype)[None])
        with precision:
            outputs, (output, cell) = self.cells(x.to(dtype), hx)
        return outputs, LSTMState(output[0], cell[0])


def reversed_in_time(x: Tensor, lengths: Tensor) -> Tensor:
    """Return `x` [B, T, d] with the first `lengths` [B] positions of each row in reverse order."""
    positions = torch.arange(x.size(1), device=x.device)
    mirrored = lengths[:, None] - 1 - positions
    places = torch.where(mirrored >= 0, mirrored, positions)  # [B, T]
    return x.gather(1, places[:, :, None].expand_as(x))
