"""LSTM layers over padded sentences, and one step at a time.

Letters: B sentences, T positions, N hypotheses, d width of the output, h width of the cell.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt_cli.device import autocast


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
        projected = hidden is not None and hidden != width
        self.cells = nn.LSTM(
            inputs, hidden or width, batch_first=True, proj_size=width if projected else 0
        )

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[B, T, inputs] -> [B, T, d], from left to right, or, with the sentences' `lengths` [B],
        from right to left.

        Padding is on the right and changes nothing before it.
        """
        if lengths is None:
            return self._run(x)[0]
        return reversed_in_time(self._run(reversed_in_time(x, lengths))[0], lengths)

    def zeros(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The initial output [N, d] and cell [N, h] for the rows of `x` [N, ...]."""
        hidden = self.cells.hidden_size
        return x.new_zeros(len(x), self.cells.proj_size or hidden), x.new_zeros(len(x), hidden)

    def resume(self, x: Tensor, output: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The next inputs [N, T, inputs], the last output [N, d] and cell [N, h] -> [N, T, d], and
        those after it.
        """
        if x.size(1) == 1:
            output, cell = self.step(x[:, 0], output, cell)
            return output[:, None], output, cell
        outputs, (output, cell) = self._run(x, (output[None], cell[None]))
        return outputs, output[0], cell[0]

    def step(self, x: Tensor, output: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """`resume` for one input [N, inputs]."""
        if not self.cells.proj_size:  # a quarter of the time of the layer with one position
            names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
            return torch.lstm_cell(x, (output, cell), *map(self.cells.get_parameter, names))
        _, (output, cell) = self._run(x[:, None], (output[None], cell[None]))
        return output[0], cell[0]

    def _run(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        # On a GPU autocast would lower it to float16, whatever its type, and float16 needs a scaled
        # loss. oneDNN has no LSTM in bfloat16 for CPUs without AVX-512.
        in_float32 = x.is_cuda or (x.is_cpu and not torch.ops.mkldnn._is_mkldnn_bf16_supported())
        dtype = torch.float32 if in_float32 else x.dtype
        state = state and (state[0].to(dtype), state[1].to(dtype))
        with autocast(x.device, "float32") if in_float32 else contextlib.nullcontext():
            return self.cells(x.to(dtype), state)


def unrolled(
    step: Callable[..., tuple[Tensor, ...]], x: Tensor, output: Tensor, cell: Tensor
) -> list[Tensor]:
    """The results [B, T, ...] of `step` for each position of `x` [B, T, ...], from the first output
    and cell.

    Args:
        step: the next input, the last output and cell [B, ...] -> the next output and cell, and
            other results.
    """
    steps: list[tuple[Tensor, ...]] = []
    for each in x.unbind(1):
        steps.append(step(each, output, cell))
        output, cell, *_ = steps[-1]
    return [torch.stack(results, 1) for results in zip(*steps, strict=True)]


def reversed_in_time(x: Tensor, lengths: Tensor) -> Tensor:
    """Return `x` [B, T, d] with the first `lengths` [B] positions of each row in reverse order."""
    positions = torch.arange(x.size(1), device=x.device)
    mirrored = lengths[:, None] - 1 - positions
    places = torch.where(mirrored >= 0, mirrored, positions)  # [B, T]
    return x.gather(1, places[:, :, None].expand_as(x))
