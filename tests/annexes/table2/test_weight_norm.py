"""Weight normalisation, and copies without it."""

from __future__ import annotations

import torch
from torch import nn

from nmt_cli.annexes.table2.weight_norm import folded, normalised


def test_a_copy_without_it_computes_the_same_and_leaves_the_original_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(normalised(nn.Linear(3, 4)), nn.Linear(4, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    x, names = torch.randn(5, 3), [name for name, _ in model.named_parameters()]
    for _ in range(2):
        copy = folded(model)
        torch.testing.assert_close(copy(x), model(x))
        assert [name for name, _ in copy.named_parameters()] == [
            "0.bias",
            "0.weight",
            "1.weight",
            "1.bias",
        ]
        assert [name for name, _ in model.named_parameters()] == names


def test_the_length_of_a_row_is_a_parameter() -> None:
    torch.manual_seed(0)
    layer = normalised(nn.Linear(300, 200), gain=4.0)
    g, v = layer.parametrizations.weight.original0, layer.parametrizations.weight.original1
    torch.testing.assert_close(layer.weight, g * v / v.norm(dim=1, keepdim=True))
    torch.testing.assert_close(layer.weight.norm(dim=1, keepdim=True), g)
    torch.testing.assert_close(layer.weight.std().item(), (4 / 300) ** 0.5, rtol=0.02, atol=0.0)
    assert not layer.bias.any()
