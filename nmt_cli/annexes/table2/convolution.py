"""Convolutions over the positions of padded sentences, and one position at a time.

Letters: B sentences, T positions, N hypotheses, C channels of the input, C' of the output, k width
of the kernel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Convolution(nn.Module):
    """A convolution that keeps the number of positions.

    Zeros stand before the first position and after the last one, so padding of zeros changes
    nothing. The weight is a matrix [C', k * C]: the k inputs of a position stand side by side.

    Args:
        inputs: C.
        outputs: C'.
        kernel: k. An even kernel has one input more after the current position than before it.
        dilation: distance between two of the k inputs.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.inputs = inputs
        self.kernel = kernel
        self.dilation = dilation
        self.reach = (kernel - 1) * dilation  # positions from the first input to the last one
        self.weight = nn.Parameter(torch.empty(outputs, kernel * inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.kaiming_uniform_(self.weight, nonlinearity="linear")

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] -> [B, T, C']."""
        before = self.reach // 2
        after = self.reach - before
        return self.inside(F.pad(x, (0, 0, before, after)))

    def inside(self, x: Tensor) -> Tensor:
        """Return the outputs whose inputs are all in `x`: [B, T + reach, C] -> [B, T, C']."""
        length = x.size(1) - self.reach
        starts = range(0, self.reach + 1, self.dilation)
        shifted = [x[:, start : start + length] for start in starts]
        inputs = torch.cat(shifted, dim=2)  # [B, T, k * C]
        return F.linear(inputs, self.weight, self.bias)


class CausalConvolution(Convolution):
    """A convolution of each position and the positions before it.

    The inputs before the next position are its window: [N, reach, C].
    """

    def zeros(self, x: Tensor) -> Tensor:
        """Return the window before the first position, for the rows of `x` [N, ...]."""
        return x.new_zeros(len(x), self.reach, self.inputs)

    def resume(self, x: Tensor, window: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs [N, T, C'] and the window after the next inputs `x` [N, T, C]."""
        inputs = torch.cat([window.to(x.dtype), x], dim=1)
        next_window = inputs[:, x.size(1) :]
        if torch.is_grad_enabled():
            # In training, views would hold the inputs of all layers in memory.
            next_window = next_window.clone()
        return self.inside(inputs), next_window
