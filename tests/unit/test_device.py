"""Devices by name, precision and memory."""

from __future__ import annotations

import ctypes

import pytest
import torch

from nmt_cli import device
from nmt_cli.device import choose_device, keep_freed_memory, prepare_cpu
from nmt_cli.errors import UsageError


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("name", "count", "local_rank", "expected"),
    [
        ("auto", 0, 0, "cpu"),
        ("auto", 2, 1, "cuda:1"),
        ("cpu", 2, 1, "cpu"),
        ("cuda", 2, 1, "cuda:1"),
        ("cuda:1", 2, 0, "cuda:1"),
    ],
)
def test_devices(monkeypatch: pytest.MonkeyPatch, name: str, count: int, local_rank: int, expected: str) -> None:
    gpus(monkeypatch, count)
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    assert choose_device(name) == torch.device(expected)


@pytest.mark.parametrize(
    ("name", "count", "local_rank", "message"),
    [
        *[(name, 0, 0, "--device must be auto") for name in ("gpu", "cuda:-1", "cuda:²")],
        ("cuda", 0, 0, "no GPU"),
        ("cuda:2", 2, 0, "2 GPUs"),
        ("auto", 1, 1, "1 GPU;"),
    ],
)
def test_unknown_names_and_missing_gpus(
    monkeypatch: pytest.MonkeyPatch, name: str, count: int, local_rank: int, message: str
) -> None:
    gpus(monkeypatch, count)
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    with pytest.raises(UsageError, match=message):
        choose_device(name)


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
    keep_freed_memory()
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
        prepare_cpu()
        assert torch.get_num_threads() == expected
        monkeypatch.setattr(device, "available_cores", lambda: 8)
        prepare_cpu()
        assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


def test_float32_products_of_training_are_float32() -> None:
    """PyTorch is allowed bfloat16, so that it uses oneDNN; the error of bfloat16 would be a thousand times as large."""
    prepare_cpu()
    rows, inner, columns = 64, 512, 700
    random = torch.Generator().manual_seed(1)
    a, b = torch.randn(rows, inner, generator=random), torch.randn(inner, columns, generator=random)
    error = ((a @ b).double() - a.double() @ b.double()).abs().max()
    assert error < 1e-5 * inner**0.5


@pytest.mark.parametrize(
    "message", ["CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"]
)
def test_memory_can_run_out_outside_pytorchs_allocator(message: str) -> None:
    assert device.is_out_of_memory(RuntimeError(message))
    assert not device.is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
