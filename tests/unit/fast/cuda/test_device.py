"""The precision of training on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nmt_cli.fast.cuda.device import Fast


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
