"""The command: its flags and its errors. tests/integration/test_serve.py runs it."""

from __future__ import annotations

import hashlib
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import nmt_cli
from nmt_cli.annexes.serving.command import (
    ServeOptions,
    about,
    split_if_possible,
    weights_fingerprint,
)
from nmt_cli.decoding.translator import Translator

Nmt = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "prometheus_client"])
def test_without_a_package(
    nmt: Nmt, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for name in [
        name
        for name in sys.modules
        if name.split(".")[0] == package or name.startswith("nmt_cli.annexes.serving")
    ]:
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


@pytest.mark.parametrize("flag", ["--nbest", "--read-ahead", "--sample", "--input"])
def test_flags_that_mean_nothing_to_a_server(nmt: Nmt, tmp_path: Path, flag: str) -> None:
    code, _, err = nmt("serve", tmp_path, flag, 3)
    assert code == 2
    assert flag in err


def test_paragraphs_are_split_where_that_is_possible(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    translator = nmt_cli.load(tiny_checkpoint, device="cpu")
    assert split_if_possible(translator).options.get("split_sentences")
    assert capsys.readouterr().err == ""
    monkeypatch.setitem(sys.modules, "sentencex", None)
    assert split_if_possible(translator) is translator
    assert "nmt-cli[sentences]" in capsys.readouterr().err
    monkeypatch.setattr(type(translator.task), "languages", None)  # as of a parser
    assert split_if_possible(translator) is translator
    assert capsys.readouterr().err == ""


def test_what_clients_may_know(tiny_checkpoint: Path) -> None:
    shown = about(
        ServeOptions(checkpoints=(tiny_checkpoint,)), nmt_cli.load(tiny_checkpoint, device="cpu")
    )
    assert shown["models"] == [f"{tiny_checkpoint.parent.name}/{tiny_checkpoint.name}"]
    assert shown["version"] == nmt_cli.__version__
    assert shown["torch"] == torch.__version__
    weights = (tiny_checkpoint / "model.safetensors").read_bytes()
    assert shown["sha256"] == [hashlib.sha256(weights).hexdigest()]


def test_the_fingerprint_of_an_export(tiny_export: Path) -> None:
    record = (tiny_export / "export.json").read_bytes()
    assert weights_fingerprint(tiny_export) == hashlib.sha256(record).hexdigest()


@pytest.mark.parametrize(
    ("flags", "splits"),
    [((), True), (("--no-split-sentences",), False), (("--sentence-language", "de"), True)],
)
def test_the_flags_of_paragraphs(
    nmt: Nmt,
    tiny_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    splits: bool,
) -> None:
    from nmt_cli.annexes.serving import server

    served: list[Translator] = []
    monkeypatch.setattr(
        server, "serve", lambda translator, *rest, **flags: served.append(translator)
    )
    assert nmt("serve", tiny_checkpoint, "--workers", 1, *flags)[0] == 0
    assert [translator.options.get("split_sentences") for translator in served] == [splits]
