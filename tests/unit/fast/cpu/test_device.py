"""What a process sets before it computes on a CPU, and the precision of training."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch import nn

from nmt_cli.fast.cpu import device

FAST = device.Fast(torch.device("cpu"))


def model_of(parameters: int) -> nn.Module:
    return nn.Linear(parameters, 1, bias=False, device="meta")


@pytest.mark.parametrize(
    ("parameters", "in_hardware", "deterministic", "expected"),
    [
        (device.SMALLEST_IN_BFLOAT16, True, False, "bfloat16"),
        (device.SMALLEST_IN_BFLOAT16 - 1, True, False, "float32"),
        (device.SMALLEST_IN_BFLOAT16, False, False, "float32"),
        (device.SMALLEST_IN_BFLOAT16, True, True, "float32"),
    ],
)
def test_a_cpu_uses_bfloat16_for_large_models_if_it_has_it(
    monkeypatch: pytest.MonkeyPatch,
    parameters: int,
    in_hardware: bool,
    deterministic: bool,
    expected: str,
) -> None:
    monkeypatch.setattr(device, "bfloat16_in_hardware", lambda: in_hardware)
    assert FAST.precision(model_of(parameters), deterministic) == expected


@pytest.mark.parametrize("most", [1 << 31, 1 << 25])
def test_the_c_library_keeps_freed_memory(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before glibc 2.35, M_MMAP_THRESHOLD (-3) is at most 32 MiB: a greater one changes nothing."""
    values: dict[int, int] = {}

    class Library:
        def mallopt(self, parameter: int, value: int) -> int:
            if parameter == -3 and value > most:
                return 0
            values[parameter] = value
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    FAST.prepare_decoding()
    assert values == {-3: min(most, 1 << 30), -1: (1 << 31) - 1}


@pytest.mark.parametrize(("wish", "expected"), [(None, 3), ("4", 4)])
def test_a_quota_limits_the_threads_unless_they_are_given(
    monkeypatch: pytest.MonkeyPatch, wish: str | None, expected: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    if wish:
        monkeypatch.setenv("OMP_NUM_THREADS", wish)
    monkeypatch.setattr(device, "available_cores", lambda: 3)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        FAST.prepare_training()
        assert torch.get_num_threads() == expected
        monkeypatch.setattr(device, "available_cores", lambda: 8)
        FAST.prepare_training()
        assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


def test_float32_products_of_training_are_float32() -> None:
    """PyTorch is allowed bfloat16, so that it uses oneDNN.

    The error of bfloat16 would be a thousand times as large.
    """
    FAST.prepare_training()
    rows, inner, columns = 64, 512, 700
    random = torch.Generator().manual_seed(1)
    a, b = torch.randn(rows, inner, generator=random), torch.randn(inner, columns, generator=random)
    error = ((a @ b).double() - a.double() @ b.double()).abs().max()
    assert error < 1e-5 * inner**0.5
