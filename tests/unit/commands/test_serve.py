"""The command: its flags and its errors. tests/integration/test_serve.py runs it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Nmt = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "prometheus_client"])
def test_without_a_package(nmt: Nmt, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package or name.startswith("nmt_cli.serving")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = nmt("serve", tiny_checkpoint)
    assert code == 2
    assert "nmt-cli[serve]" in err
    assert package in err


def test_a_port_in_use(nmt: Nmt, tiny_checkpoint: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = nmt("serve", tiny_checkpoint, "--port", port)
    assert (code, out) == (1, "")
    assert str(port) in err
    assert err.count("\n") == 1


def test_a_directory_that_is_no_checkpoint(nmt: Nmt, tmp_path: Path) -> None:
    code, _, err = nmt("serve", tmp_path, "--port", 0)
    assert code == 1
    assert str(tmp_path) in err


@pytest.mark.parametrize("flag", ["--nbest", "--read-ahead", "--sample", "--input"])
def test_flags_that_mean_nothing_to_a_server(nmt: Nmt, tmp_path: Path, flag: str) -> None:
    code, _, err = nmt("serve", tmp_path, flag, 3)
    assert code == 2
    assert flag in err


def test_a_dictionary_that_is_not_used(nmt: Nmt, tiny_checkpoint: Path) -> None:
    code, _, err = nmt("serve", tiny_checkpoint, "--dictionary", "words.tsv")
    assert code == 2
    assert "--dictionary is for unknown words" in err


@pytest.mark.parametrize("flags", [("--port", 65536), ("--max-queue", 0), ("--timeout", 0), ("--beam", 0)])
def test_values_out_of_range(nmt: Nmt, tiny_checkpoint: Path, flags: tuple[str, int]) -> None:
    code, _, err = nmt("serve", tiny_checkpoint, *flags)
    assert code == 2
    assert flags[0] in err
