"""Translators by engine, and the export that is kept beside a checkpoint."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nmt_cli
from nmt_cli.annexes.exchange.ctranslate2 import engine as ctranslate2_engine
from nmt_cli.annexes.exchange.ctranslate2.engine import kept_export
from nmt_cli.annexes.exchange.export.formats import record_of
from nmt_cli.decoding.loading import load_translator
from nmt_cli.decoding.options import SearchOptions, TranslateOptions
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.training.run_directory import delete_checkpoint

LINES = ["abc", "hgfedcba", "", "a"]
GREEDY = TranslateOptions(search=SearchOptions(beam=1))


def test_the_export_is_kept_and_made_anew_when_the_checkpoint_or_the_version_changes(
    make_checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, export = make_checkpoint(tmp_path / "checkpoint"), tmp_path / ".checkpoint.ctranslate2"
    said: list[str] = []

    def translations() -> list[str]:
        said.clear()
        loaded = load_translator(
            [folder], GREEDY, device="cpu", engine="ctranslate2", say=said.append
        )
        return loaded.translate(LINES)

    first = translations()
    assert said[0] == f"exporting to {export}, which is kept"
    assert first == nmt_cli.load(folder, device="cpu", beam=1).translate(LINES)
    written = (export / "model.bin").stat()
    assert translations() == first
    assert (export / "model.bin").stat() == written
    assert said == []
    shutil.rmtree(folder)
    make_checkpoint(folder, seed=3)
    second = translations()
    assert said[0] == f"exporting to {export}, which is kept"
    assert second == nmt_cli.load(folder, device="cpu", beam=1).translate(LINES) != first
    monkeypatch.setattr(ctranslate2_engine, "__version__", "0.0")
    assert translations() == second
    assert said[0] == f"exporting to {export}, which is kept"


def test_a_run_stands_for_its_newest_checkpoint_and_leaves_no_exports_of_deleted_ones(
    make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoints = tmp_path / "checkpoints"
    old, new = (make_checkpoint(checkpoints / f"step-{step:08}", seed=step) for step in (9, 10))
    (checkpoints / ".other.ctranslate2").mkdir()  # not ours
    kept_export(old, lambda message: None)
    (checkpoints / f"..{old.name}.ctranslate2.nmt-part").mkdir()  # a second process was killed
    delete_checkpoint(old)  # as training does
    said: list[str] = []
    export = kept_export(tmp_path, said.append)
    assert said[0] == f"{tmp_path}: using {new}"
    assert sorted(path.name for path in checkpoints.iterdir()) == [
        ".other.ctranslate2",
        export.name,
        new.name,
    ]


def test_one_of_several_calls_exports_and_the_others_wait(
    make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder, said = make_checkpoint(tmp_path / "checkpoint"), list[str]()
    with ThreadPoolExecutor(4) as threads:
        places = list(threads.map(kept_export, [folder] * 4, [said.append] * 4))
    assert {*places} == {tmp_path / ".checkpoint.ctranslate2"}
    assert sum(line.startswith("exporting") for line in said) == 1


def test_a_place_that_cannot_be_written(
    make_checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint")
    with monkeypatch.context() as patch:
        # Root may write anywhere.
        patch.setattr(os, "access", lambda path, mode: (path, mode) != (tmp_path, os.W_OK))
        with pytest.raises(
            UsageError, match=rf"{tmp_path}: cannot be written.* nmt export {folder} .*--out DIR"
        ):
            kept_export(folder, lambda message: None)
    assert list(tmp_path.iterdir()) == [folder]
    kept_in_cache = kept_export(folder, lambda message: None)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert kept_export(folder, lambda message: None) == kept_in_cache


def test_what_differs_is_said_where_it_differs(tiny_export: Path) -> None:
    said: list[str] = []
    load_translator([tiny_export], GREEDY, device="cpu", engine="ctranslate2", say=said.append)
    assert said == []
    load_translator([tiny_export], device="cpu", engine="ctranslate2", say=said.append)
    assert len(said) == 1
    assert "length^alpha" in said[0]
    assert "unknown word" in said[0]


WITHOUT_TORCH_TOO = (
    *("checkpoint", "plugins", "commands.prepare", "commands.score", "commands.translate"),
    *("data.corpus", "data.parallel", "decoding.around", "decoding.loading"),
    *("decoding.translator", "annexes.serving.server"),
    *("annexes.serving.command", "annexes.serving.interactive", "annexes.around.sentences"),
)
WITHOUT_TORCH = """
import importlib, sys

sys.modules["torch"] = None  # `import torch` raises
from nmt_cli.cli import main

try:
    main([*"translate --engine ctranslate2 --device cpu --quiet".split(), *sys.argv[1:]])
except SystemExit as end:
    assert not end.code, end.code
for name in """


def test_translating_with_it_needs_no_torch(
    make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """Only writing the export does. Nor does importing what the command and the server need."""
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    kept_export(checkpoint, lambda message: None)
    code = (
        f"{WITHOUT_TORCH}{WITHOUT_TORCH_TOO!r}:\n    importlib.import_module(f'nmt_cli.{{name}}')"
    )
    run = [sys.executable, "-c", code, checkpoint, "--beam", "1"]
    done = subprocess.run(run, input="abc\n\na\n", capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    expected = nmt_cli.load(checkpoint, device="cpu", beam=1).translate(["abc", "", "a"])
    assert done.stdout.split("\n")[:-1] == expected


def test_the_package_that_is_missing_is_named(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    for name in ("writing", "engine"):
        monkeypatch.delitem(
            sys.modules, f"nmt_cli.annexes.exchange.ctranslate2.{name}", raising=False
        )
    with pytest.raises(UsageError, match="pip install ctranslate2"):
        nmt_cli.load(copy, device="cpu", engine="ctranslate2")
    assert list(tmp_path.iterdir()) == [copy]


def test_what_it_does_not_load(tiny_checkpoint: Path, tiny_export: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'ctranslate'.* ctranslate2"):
        nmt_cli.load(tiny_checkpoint, engine="ctranslate")
    with pytest.raises(UsageError, match=rf"{tiny_export}: not a checkpoint.*--engine"):
        nmt_cli.load(tiny_export, device="cpu")
    other = tmp_path / "other"
    other.mkdir()
    (other / "export.json").write_text('{"format": "huggingface"}')
    for engine in ("nmt", "ctranslate2"):
        with pytest.raises(UsageError, match=f"{other}: not a checkpoint, but an export"):
            nmt_cli.load(other, device="cpu", engine=engine)
    with pytest.raises(UsageError, match="ensemble"):
        nmt_cli.load([tiny_checkpoint, tiny_export], device="cpu", engine="ctranslate2")
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        nmt_cli.load(tmp_path, device="cpu", engine="ctranslate2")
    assert record_of(tmp_path) == {}
