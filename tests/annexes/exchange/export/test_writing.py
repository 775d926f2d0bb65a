"""An export is whole or absent, and says what it is."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.annexes.exchange.export import formats
from nmt_cli.annexes.exchange.export.formats import fingerprint_of, record_of
from nmt_cli.annexes.exchange.export.writing import (
    LINES,
    sample_lines,
    write_export,
)
from nmt_cli.checkpoint import load_task
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.interfaces import UNK


class Recorded:
    """A format that writes the samples into a file. `fault` is raised after that."""

    fault: Exception | None = None

    def export(
        self, model: Any, task: Any, samples: Sequence[str], folder: Path, quantization: str
    ) -> list[str]:
        assert not model.training
        (folder / "samples").write_text("\n".join(samples))
        if self.fault is not None:
            raise self.fault
        return ["all is equal"]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    format = Recorded()
    monkeypatch.setattr("nmt_cli.annexes.exchange.export.writing.module_of", lambda to: format)
    return format


@pytest.mark.usefixtures("recorded")
def test_an_export_has_its_record_and_the_task(tiny_checkpoint: Path, tmp_path: Path) -> None:
    said: list[str] = []
    write_export(tiny_checkpoint, "ctranslate2", tmp_path / "out", say=said.append)
    record = json.loads((tmp_path / "out" / "export.json").read_text())
    assert record["files"] == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert (record["format"], record["checkpoint"]) == (
        "ctranslate2",
        fingerprint_of(tiny_checkpoint),
    )
    our_task = load_task(tiny_checkpoint / "task")
    exported_task = load_task(tmp_path / "out" / "task")
    assert our_task.encode_source("abc") == exported_task.encode_source("abc")
    assert said[0].startswith("checked on 32 lines")
    assert said[1:] == ["  all is equal"]


def test_an_error_leaves_nothing_behind(
    recorded: Recorded, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    recorded.fault = CheckpointError("it differs")
    with pytest.raises(CheckpointError, match="it differs"):
        write_export(tiny_checkpoint, "ctranslate2", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_only_an_export_is_replaced_and_only_if_asked(
    recorded: Recorded, tiny_checkpoint: Path, make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    write_export(tiny_checkpoint, "ctranslate2", out)
    with pytest.raises(UsageError, match="--overwrite"):
        write_export(tiny_checkpoint, "ctranslate2", out)
    other = make_checkpoint(tmp_path / "other", seed=3)
    recorded.fault = UsageError("no")
    with pytest.raises(UsageError, match="no"):
        write_export(other, "ctranslate2", out, overwrite=True)
    assert json.loads((out / "export.json").read_text())["checkpoint"] == fingerprint_of(
        tiny_checkpoint
    )
    recorded.fault = None
    write_export(other, "huggingface", out, overwrite=True)
    assert json.loads((out / "export.json").read_text())["checkpoint"] == fingerprint_of(other)
    (out / "mine.txt").touch()
    with pytest.raises(UsageError, match="in use: it contains mine"):
        write_export(other, "ctranslate2", out, overwrite=True)
    checkpoint = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    with pytest.raises(UsageError, match="in use"):
        write_export(other, "ctranslate2", checkpoint, overwrite=True)


@pytest.mark.parametrize("files", [5, None, [["export.json"]]])
def test_what_a_damaged_record_does_not_name_is_kept(
    recorded: Recorded, tiny_checkpoint: Path, tmp_path: Path, files: Any
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "export.json").write_text(json.dumps({"files": files}))
    with pytest.raises(UsageError, match="in use"):
        write_export(tiny_checkpoint, "ctranslate2", out, overwrite=True)


def test_lines_of_the_vocabulary(tiny_checkpoint: Path) -> None:
    task = load_task(tiny_checkpoint / "task")
    lines = sample_lines(task)
    assert len(lines) == len(set(lines)) == LINES
    ids = [task.encode_source(line) for line in lines]
    assert set().union(*ids) >= set(range(5, task.source_vocabulary_size))
    assert not any(UNK in row for row in ids)
    assert lines == sample_lines(task)


def test_a_pipe_or_a_device_is_not_opened(tmp_path: Path) -> None:
    for name in ("pipe", "device"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe" / "export.json")
    (tmp_path / "device" / "export.json").symlink_to("/dev/zero")
    assert record_of(tmp_path / "pipe") == record_of(tmp_path / "device") == {}


def test_every_format_has_an_extra_of_its_name() -> None:
    project = tomllib.loads(
        Path(__file__).parents[4].joinpath("pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    present = formats.FORMATS.names
    assert "ctranslate2" in present
    assert present <= set(project["optional-dependencies"])
