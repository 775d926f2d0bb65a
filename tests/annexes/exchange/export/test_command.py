"""`nmt export`, from its flags to the directory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import nmt_cli

Run = Callable[..., tuple[int, str, str]]


def test_a_run_is_exported_and_the_check_reported(
    nmt: Run, make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    folder = make_checkpoint(run / "checkpoints" / "step-00000010")
    code, stdout, err = nmt("export", run, "--to", "ctranslate2", "--out", out)
    assert (code, stdout) == (0, "")
    first, checked, probabilities, outputs, last = err.splitlines()
    assert first == f"{run}: using {folder}"
    assert checked == "checked on 32 lines made of random entries of the vocabulary:"
    assert "log-probabilities" in probabilities
    assert outputs == "  greedy outputs: 32 of 32 equal"
    assert last == f"exported {folder} to {out}"
    their_outputs = nmt_cli.load(out, device="cpu", engine="ctranslate2", beam=1)
    our_outputs = nmt_cli.load(folder, device="cpu", beam=1)
    assert their_outputs.translate(["abc", "hgf"]) == our_outputs.translate(["abc", "hgf"])
    assert nmt("export", run, "--to", "ctranslate2", "--out", out)[0] == 2
    assert nmt("export", run, "--to", "ctranslate2", "--out", out, "--overwrite")[0] == 0


def test_errors_are_one_message(
    nmt: Run,
    tiny_checkpoint: Path,
    tiny_export: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, _, err = nmt("export", tmp_path, "--to", "ctranslate2", "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (1, 1)
    assert f"nmt: {tmp_path}: not a checkpoint" in err
    code, _, err = nmt("export", tiny_export, "--to", "huggingface", "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (2, 1)
    assert f"nmt: {tiny_export}: not a checkpoint, but an export" in err
    code, _, err = nmt("export", tiny_checkpoint, "--to", "onnx", "--out", tmp_path / "out")
    assert code == 2
    assert "ctranslate2" in err
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    for name in ("writing", "engine"):
        monkeypatch.delitem(
            sys.modules, f"nmt_cli.annexes.exchange.ctranslate2.{name}", raising=False
        )
    code, _, err = nmt("export", tiny_checkpoint, "--to", "ctranslate2", "--out", tmp_path / "out")
    assert (code, err) == (
        2,
        "nmt: ctranslate2 needs the package ctranslate2: pip install 'nmt-cli[ctranslate2]'\n",
    )
    assert list(tmp_path.iterdir()) == []
