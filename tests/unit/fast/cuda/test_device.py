"""The precision of training on a GPU, and when layers are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from nmt_cli.fast.cuda import device
from nmt_cli.fast.cuda.device import Fast
from nmt_cli.interfaces import Criterion
from nmt_cli.models.transformer import DecoderLayer, EncoderLayer, Transformer


@pytest.mark.parametrize(("compute_capability", "expected"), [(6, "float32"), (7, "float16"), (8, "bfloat16")])
def test_a_gpu_uses_the_type_that_it_computes_fast(
    monkeypatch: pytest.MonkeyPatch, compute_capability: int, expected: str
) -> None:
    class Properties:
        major = compute_capability

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    assert Fast(torch.device("cuda", 0)).precision(nn.Module(), deterministic=False) == expected


@pytest.mark.parametrize(("wanted", "small", "large"), [(None, False, True), (True, True, True), (False, False, False)])
def test_large_models_are_compiled(
    monkeypatch: pytest.MonkeyPatch, made: Callable[..., Transformer], wanted: bool | None, small: bool, large: bool
) -> None:
    computing = Fast(torch.device("cuda"))
    model = made()
    computing.fit(model)
    size = sum(parameter.numel() for parameter in model.parameters())
    compiled = []
    for limit in (size + 1, size):
        monkeypatch.setattr(device, "SMALLEST_COMPILED", limit)
        called: list[Any] = []
        monkeypatch.setattr(EncoderLayer, "compile", lambda layer, called=called, **_: called.append(layer))
        monkeypatch.setattr(DecoderLayer, "compile", lambda layer, called=called, **_: called.append(layer))
        computing.compile(model, Criterion(), wanted)
        compiled.append(called == [*model.encoder, *model.decoder])
    assert compiled == [small, large]
