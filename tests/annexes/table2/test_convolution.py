"""Agreement with torch's convolutions, and one position at a time."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.annexes.table2.convolution import CausalConvolution, Convolution

SHAPES = [(3, 1), (3, 2), (5, 3), (1, 1)]


def conv1d(layer: Convolution, x: Tensor) -> Tensor:
    """What torch makes of zeros around `x` [B, T, C] and the weights of `layer`."""
    weight = layer.weight.view(len(layer.weight), layer.kernel, -1).transpose(1, 2)  # [C', C, k]
    reach = (layer.kernel - 1) * layer.dilation
    before = reach if isinstance(layer, CausalConvolution) else reach // 2
    padded = F.pad(x.transpose(1, 2), (before, reach - before))
    return F.conv1d(padded, weight, layer.bias, dilation=layer.dilation).transpose(1, 2)


def whole(layer: Convolution, x: Tensor) -> Tensor:
    return layer.resume(x, layer.zeros(x))[0] if isinstance(layer, CausalConvolution) else layer(x)


@pytest.mark.parametrize("kind", [Convolution, CausalConvolution])
@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_it_is_torchs_convolution(kind: type[Convolution], kernel: int, dilation: int) -> None:
    layer, x = kind(4, 6, kernel, dilation), torch.randn(2, 7, 4)
    torch.testing.assert_close(whole(layer, x), conv1d(layer, x))


@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_parts_with_the_window_equal_the_whole(kernel: int, dilation: int) -> None:
    layer, x = CausalConvolution(4, 6, kernel, dilation), torch.randn(2, 9, 4)
    window, parts = layer.zeros(x[:, 0]), []
    for part in x.split([1, 1, 4, 3], dim=1):
        output, window = layer.resume(part, window)
        parts.append(output)
    assert window.shape == (2, (kernel - 1) * dilation, 4)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole(layer, x))
