"""Files and directories are whole or absent; `recover` cleans up after a crash."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nmt_cli.files import durable


def make(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "file").write_text(content)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_is_put_in_place(tmp_path: Path, there: bool) -> None:
    place = tmp_path / "place"
    if there:
        make(place, "old")
    durable.put_in_place(make(durable.beside(place, "part"), "new"), place)
    assert (place / "file").read_text() == "new"
    assert names(tmp_path) == ["place"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()])
@pytest.mark.parametrize("failing", [1, 2])
def test_a_failure_leaves_the_former_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, failing: int
) -> None:
    """At the first rename or at the second."""
    place = make(tmp_path / "place", "old")
    part = make(durable.beside(place, "part"), "new")
    rename, calls = Path.rename, iter(range(1, 9))

    def breaks(self: Path, target: Path) -> Path:
        if next(calls) == failing:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", breaks)
    with pytest.raises(type(error)):
        durable.put_in_place(part, place)
    assert (place / "file").read_text() == "old"
    assert names(tmp_path) == ["place"]


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ({".a.old": "old", ".a.part": "new"}, {"a": "old"}),  # killed between two renames
        ({"a": "new", ".a.old": "old"}, {"a": "new"}),  # killed before the old was deleted
        ({"a": "old", ".a.part": "half"}, {"a": "old"}),  # killed while writing
        ({".a.gone": "old"}, {}),  # killed while deleting
        ({"a": "x", ".b.old": "y", ".hidden": "mine"}, {"a": "x", "b": "y", ".hidden": "mine"}),
    ],
)
def test_remains_of_a_crash_are_cleaned_up(tmp_path: Path, left: dict[str, str], expected: dict[str, str]) -> None:
    for name, content in left.items():
        make(tmp_path / name, content)
    durable.recover_all(tmp_path)
    assert {name: (tmp_path / name / "file").read_text() for name in names(tmp_path)} == expected


def test_a_deleted_folder_is_gone_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path / "folder", "x")

    def dies(path: Path, **_: object) -> None:
        if path.exists():
            raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", dies)
    with pytest.raises(KeyboardInterrupt):
        durable.delete(folder)
    assert not folder.exists()


def test_files_that_nfs_keeps_are_left_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as a file is open, NFS keeps it under another name, and its directory with it."""

    def busy(*_: object, **__: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    folder = make(tmp_path / "folder", "x")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", busy)
        durable.delete(folder)
    assert not folder.exists()
    assert names(tmp_path) == [".folder.gone"]
    durable.recover_all(tmp_path)
    assert names(tmp_path) == []


def test_a_file_is_replaced_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    durable.write_text(path, "old")
    durable.append_line(path, "er")
    assert path.read_text() == "older\n"

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        durable.write_text(path, "new")
    assert error.value.filename is not None
    assert path.read_text() == "older\n"
    assert names(tmp_path) == ["file"]
