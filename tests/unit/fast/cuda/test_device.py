"""The precision of a GPU, and when layers are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.criteria.settings import LabelSmoothingConfig
from nmt_cli.data.batching import collate
from nmt_cli.fast.cuda import device
from nmt_cli.fast.cuda.device import Fast
from nmt_cli.interfaces import Batch, Criterion
from nmt_cli.models.transformer import DecoderLayer, EncoderLayer, Transformer


@pytest.mark.parametrize(
    ("compute_capability", "expected"), [(6, "float32"), (7, "float16"), (8, "bfloat16")]
)
def test_a_gpu_uses_the_type_that_it_computes_fast(
    monkeypatch: pytest.MonkeyPatch, compute_capability: int, expected: str
) -> None:
    class Properties:
        major = compute_capability

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    fast = Fast(torch.device("cuda", 0))
    assert fast.precision(nn.Module(), deterministic=False) == expected
    assert fast.decoding_dtype() == expected


def test_a_criterion_with_outputs_of_its_own_keeps_them(build: Callable[..., Transformer]) -> None:
    """They are of padded sentences, not of bins."""

    class Own(LabelSmoothedCrossEntropy):
        def outputs(self, model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
            hidden, targets = super().outputs(model, batch)
            return 2 * hidden, targets

    computing, model = Fast(torch.device("cuda")), build()
    batch = collate([[5, 6], [7]], [[8], [9, 10, 11]])
    for criterion, factor in (
        (LabelSmoothedCrossEntropy(LabelSmoothingConfig()), 1),
        (Own(LabelSmoothingConfig()), 2),
    ):
        expected = factor * Criterion().outputs(model, batch)[0]
        computing.fit(model, criterion)
        hidden, targets = criterion.outputs(model, batch)
        torch.testing.assert_close(hidden[: len(targets)], expected)
        assert computing.takes_bins(model, criterion) is (factor == 1)


@pytest.mark.parametrize(
    ("kernels", "limit_name"),
    [
        ({}, "SMALLEST_COMPILED"),
        ({"attention": "", "loss": "it fails"}, "SMALLEST_COMPILED"),
        ({"attention": "", "loss": ""}, "SMALLEST_WITH_KERNELS"),
    ],
)
@pytest.mark.parametrize(
    ("wanted", "small", "large"), [(None, False, True), (True, True, True), (False, False, False)]
)
def test_large_models_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[..., Transformer],
    wanted: bool | None,
    small: bool,
    large: bool,
    kernels: dict[str, str],
    limit_name: str,
) -> None:
    """With all kernels, other models are large."""
    computing = Fast(torch.device("cuda"))
    model = build()
    computing.fit(model)
    computing.kernels = kernels
    size = sum(parameter.numel() for parameter in model.parameters())
    compiled = []
    for limit in (size + 1, size):
        monkeypatch.setattr(device, limit_name, limit)
        called: list[Any] = []
        monkeypatch.setattr(
            EncoderLayer, "compile", lambda layer, called=called, **_: called.append(layer)
        )
        monkeypatch.setattr(
            DecoderLayer, "compile", lambda layer, called=called, **_: called.append(layer)
        )
        computing.compile(model, Criterion(), wanted)
        compiled.append(called == [*model.encoder, *model.decoder])
    assert compiled == [small, large]
