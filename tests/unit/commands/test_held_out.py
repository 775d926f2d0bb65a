"""The test text that prepared data have, found from a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt_cli.commands.held_out import file_of_test_text, reference_file
from nmt_cli.data.corpus import SIDES, CorpusWriter
from nmt_cli.errors import UsageError


def write_data(folder: Path, *splits: str) -> Path:
    folder.mkdir()
    entries = {}
    for split in splits:
        with CorpusWriter(folder, split, (9, 9)) as writer:
            for side in SIDES:
                writer.add(side, np.array([5]), np.array([1]), ["a line"])
            entries[split] = writer.close()
    (folder / "manifest.json").write_text(json.dumps({"schema": 1, "splits": entries}))
    return folder


def write_run(folder: Path, **data: Any) -> Path:
    (folder / "checkpoints" / "step-00000001").mkdir(parents=True)
    config = {"data": {"path": "", **data}, "training": {"precision": "float32"}, "imports": []}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_places_that_name_the_test_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = write_data(tmp_path / "without", "train")
    data = write_data(tmp_path / "data", "train", "test")
    several = write_run(tmp_path / "several", paths=[f"{without}*2", f"{data}*3"])
    alone = write_run(tmp_path / "alone", path=str(data))  # as version 1.0 recorded it
    monkeypatch.chdir(alone)
    for place in (
        data,
        several,
        alone,
        alone / "checkpoints" / "step-00000001",
        Path("averaged"),
        Path(),
    ):
        place.mkdir(exist_ok=True)
        assert file_of_test_text(place, "source", "--test", "--input") == data / "test.source.txt"
        assert reference_file(str(place)) == str(data / "test.target.txt")
    (tmp_path / "file").touch()
    assert [reference_file(name) for name in ("-", str(tmp_path / "file"))] == [
        "-",
        str(tmp_path / "file"),
    ]


def test_a_test_text_that_has_changed(tmp_path: Path) -> None:
    """It would be translated or scored as if it were the one that was prepared."""
    data = write_data(tmp_path / "data", "test")
    (data / "test.target.txt").write_text("b line\n")
    with pytest.raises(UsageError, match=r"--ref: .*test\.target\.txt: .*changed"):
        reference_file(str(data))


def test_places_without_a_test_text(tmp_path: Path) -> None:
    without = write_data(tmp_path / "without", "train", "valid")
    gone = write_run(tmp_path / "run", path=str(tmp_path / "gone"))
    messages = {
        without: f"--test: {without} has no test text; run nmt prepare with --test PREFIX",
        gone: (
            f"--test: {tmp_path}/gone: no such directory; .* Or give --input DATA/test.source.txt"
        ),
        tmp_path: (
            f"--test: {tmp_path}: not a run: it has no config.json. Or give --input "
            "DATA/test.source.txt"
        ),
    }
    for place, message in messages.items():
        with pytest.raises(UsageError, match=message):
            file_of_test_text(place, "source", "--test", "--input")
