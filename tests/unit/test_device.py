"""Devices by name, precision and memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nmt_cli import device
from nmt_cli.device import Plain, choose_device
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
def test_devices(
    monkeypatch: pytest.MonkeyPatch, name: str, count: int, local_rank: int, expected: str
) -> None:
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


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_computing_of_a_device_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    place = torch.device(kind)
    assert type(device.fast(place)) is not Plain
    monkeypatch.setenv("NMT_FAST", "0")
    assert type(device.fast(place)) is Plain
    monkeypatch.delenv("NMT_FAST")
    monkeypatch.setitem(device.ROOMS, kind, "nmt_cli.missing.device")
    assert type(device.fast(place)) is Plain


def test_an_error_in_the_computing_of_a_device_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken_room.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(device.ROOMS, "cpu", "broken_room")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        device.fast(torch.device("cpu"))


@pytest.mark.parametrize(
    "message", ["CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"]
)
def test_memory_can_run_out_outside_pytorchs_allocator(message: str) -> None:
    assert device.is_out_of_memory(RuntimeError(message))
    assert not device.is_out_of_memory(
        RuntimeError("CUDA error: an illegal memory access was encountered")
    )


def test_int8_needs_the_fast_room() -> None:
    with pytest.raises(UsageError, match=r"--dtype int8 .*float32 or bfloat16"):
        Plain(torch.device("cpu")).decodable(None, "int8")
