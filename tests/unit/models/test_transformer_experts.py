"""A Transformer whose feed-forward layers are mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from nmt_cli import packing
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import PAD, AddsLoss
from nmt_cli.models.transformer import Transformer
from nmt_cli.packing import Packing

Made = Callable[..., Transformer]

SOURCE, TARGET = torch.tensor([[5, 6, 7, 3], [9, 3, 0, 0]]), torch.tensor([[2, 5, 6], [2, 4, 0]])


def added(model: Transformer, source: torch.Tensor, target_in: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(1)
    model.decoder_rows(source, target_in, Packing.of(source != PAD), Packing.of(target_in != PAD))
    return torch.stack([module.added_loss() for module in model.modules() if isinstance(module, AddsLoss)])


def test_padding_and_filler_have_no_expert(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the four layers adds the same to the loss with and without them."""
    model = made(experts=4)
    losses = added(model, SOURCE, TARGET)
    assert losses.shape == (4,)
    wider = [torch.nn.functional.pad(each, (0, 5)) for each in (SOURCE, TARGET)]
    torch.testing.assert_close(added(model, *wider), losses)
    monkeypatch.setattr(packing, "MULTIPLE", 1)
    torch.testing.assert_close(added(model, *wider), losses)


def test_without_experts_nothing_is_added(made: Made) -> None:
    assert not [module for module in made().modules() if isinstance(module, AddsLoss)]


def test_operations_are_those_that_torch_counts(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MULTIPLE", 1)
    model = made(experts=4, experts_per_token=3)
    with FlopCounterMode(display=False) as counter:
        model(torch.full((2, 5), 7), torch.full((2, 4), 7)).sum().backward()
    counted = model.training_flops(np.full(2, 5), np.full(2, 4))
    assert sum(counted.values()) == counter.get_total_flops()


def test_it_does_not_decode_in_int8(made: Made) -> None:
    with pytest.raises(UsageError, match="--dtype int8: a Transformer with --experts decodes in float32 or bfloat16"):
        made(experts=4).eval().decodable("int8")


@pytest.mark.parametrize("fields", [{"activation": "gelu"}, {"gated_feed_forward": True}])
def test_experts_have_an_activation_of_their_own(made: Made, fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"--experts .* --activation or --gated-feed-forward"):
        made(experts=4, **fields)
