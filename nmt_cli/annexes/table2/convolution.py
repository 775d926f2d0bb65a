"""Convolutions over the positions of padded sentences, and one position at a time.

Letters: B sentences, T positions, N hypotheses, C channels of the input, C' of the output, k width
of the kernel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Convolution(nn.Module):
    """A convolution that keeps the number of positions: zeros stand before the first and after the
    last one.

    So padding changes nothing if it is zero. The weight is a matrix [C', k * C], for the k inputs
    side by side.

    Args:
        inputs: C.
        outputs: C'.
        kernel: k; an even one reaches one position further after the current one than before it.
        dilation: distance between two of the k inputs.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.kernel, self.dilation = kernel, dilation
        self.weight = nn.Parameter(torch.empty(outputs, kernel * inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.kaiming_uniform_(self.weight, nonlinearity="linear")

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] -> [B, T, C']."""
        reach = (self.kernel - 1) * self.dilation
        return self.inside(F.pad(x, (0, 0, reach // 2, reach - reach // 2)))

    def inside(self, x: Tensor) -> Tensor:
        """The outputs whose inputs are all in `x`: [B, T + (k - 1) * dilation, C] -> [B, T, C']."""
        reach = (self.kernel - 1) * self.dilation
        shifted = [
            x[:, start : x.size(1) - reach + start] for start in range(0, reach + 1, self.dilation)
        ]
        return F.linear(torch.cat(shifted, dim=2), self.weight, self.bias)


class CausalConvolution(Convolution):
    """A convolution of each position and those before it; a window holds the inputs before the next
    one.
    """

    def zeros(self, x: Tensor) -> Tensor:
        """The window before the first position, for the rows of `x` [N, ...]: [N, (k - 1) *
        dilation, C].
        """
        return x.new_zeros(
            len(x), (self.kernel - 1) * self.dilation, self.weight.size(1) // self.kernel
        )

    def resume(self, x: Tensor, window: Tensor) -> tuple[Tensor, Tensor]:
        """The next inputs [N, T, C] and the window of those before them -> [N, T, C'], and the next
        window.
        """
        inputs = torch.cat([window.to(x.dtype), x], dim=1)
        after = inputs[:, x.size(1) :]
        # In training, views would hold the inputs of all layers in memory.
        return self.inside(inputs), after.clone() if torch.is_grad_enabled() else after
