"""Files and directories are whole or absent. `recover` cleans up after a crash."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nmt_cli.errors import UsageError
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
    with durable.new_directory(place) as aside:
        (aside / "file").write_text("new")
    assert (place / "file").read_text() == "new"
    assert names(tmp_path) == ["place"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()])
@pytest.mark.parametrize("failing", [1, 2])
def test_a_failure_leaves_the_former_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, failing: int
) -> None:
    """At the first rename or at the second."""
    place = make(tmp_path / "place", "old")
    rename, calls = Path.rename, iter(range(1, 9))

    def breaks(self: Path, target: Path) -> Path:
        if next(calls) == failing:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", breaks)
    with pytest.raises(type(error)), durable.new_directory(place) as aside:
        (aside / "file").write_text("new")
    assert (place / "file").read_text() == "old"
    assert names(tmp_path) == ["place"]


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ({".a.nmt-old": "old", ".a.nmt-part": "new"}, {"a": "old"}),  # killed between two renames
        ({"a": "new", ".a.nmt-old": "old"}, {"a": "new"}),  # killed before the old was deleted
        ({"a": "old", ".a.nmt-part": "half"}, {"a": "old"}),  # killed while writing
        ({".a.nmt-gone": "old"}, {}),  # killed while deleting
        (
            {".a.old": "mine", ".a.part": "mine", ".b.nmt-old": "x"},
            {".a.old": "mine", ".a.part": "mine", ".b.nmt-old": "x"},
        ),
    ],
)
def test_remains_of_a_crash_are_cleaned_up(
    tmp_path: Path, left: dict[str, str], expected: dict[str, str]
) -> None:
    for name, content in left.items():
        make(tmp_path / name, content)
    durable.recover(tmp_path / "a")
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


def test_files_that_nfs_keeps_are_left_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as a file is open, NFS keeps it under another name, and its directory with it."""

    def busy(*_: object, **__: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    folder = make(tmp_path / "folder", "x")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", busy)
        durable.delete(folder)
    assert not folder.exists()
    assert names(tmp_path) == [".folder.nmt-gone"]
    durable.recover(folder)
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


def test_a_file_of_ours_must_be_one(tmp_path: Path) -> None:
    """Nothing is written through a link, and nothing waits for a pipe."""
    (tmp_path / "thesis").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "thesis")
    (tmp_path / "dangling").symlink_to(tmp_path / "absent")
    (tmp_path / "device").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, kind in [
        ("link", "a link"),
        ("dangling", "a link"),
        ("device", "a link"),
        ("pipe", "a pipe or a device"),
        ("folder", "a directory"),
    ]:
        path = tmp_path / name
        for write in (durable.write_text, durable.append_line):
            with pytest.raises(UsageError, match=f"{name}: this is {kind}"):
                write(path, "x")
        with pytest.raises(UsageError, match=f"{name}: this is {kind}"):
            durable.open_ours(path)
    assert (tmp_path / "thesis").read_text() == "mine"
    assert not (tmp_path / "absent").exists()


def test_no_file_is_emptied_by_opening_it(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("mine")
    os.close(durable.open_ours(tmp_path / "lock"))
    assert (tmp_path / "lock").read_text() == "mine"


def test_a_link_in_the_place_of_an_unfinished_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if its name could be foreseen."""
    monkeypatch.setattr(os, "urandom", bytes)
    (tmp_path / "thesis").write_text("mine")
    (tmp_path / ".out.000000000000.nmt-part").symlink_to(tmp_path / "thesis")
    with pytest.raises(FileExistsError), durable.new_file(tmp_path / "out"):
        pytest.fail("must not be entered")
    assert (tmp_path / "thesis").read_text() == "mine"
    assert not (tmp_path / "out").exists()


def test_deleting_stops_at_links(tmp_path: Path) -> None:
    make(tmp_path / "scratch", "mine")
    (tmp_path / "a").symlink_to(tmp_path / "scratch")
    (tmp_path / ".a.nmt-part").symlink_to(tmp_path / "scratch")
    (tmp_path / ".a.nmt-gone").symlink_to(tmp_path / "scratch")
    durable.recover(tmp_path / "a")
    durable.delete(tmp_path / "a")
    assert names(tmp_path) == ["scratch"]
    assert (tmp_path / "scratch" / "file").read_text() == "mine"


def test_a_link_takes_the_place_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(tmp_path / "place", "copy")
    make(tmp_path / "target", "x")

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            durable.new_link(place, Path("target"))
    durable.recover(place)
    assert (place / "file").read_text() == "copy"
    durable.new_link(place, Path("target"))
    assert (place / "file").read_text() == "x"
    assert names(tmp_path) == ["place", "target"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_file_systems_that_cannot_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Nor set permissions."""

    def unknown(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", unknown)
    monkeypatch.setattr(os, "fchmod", unknown)
    for _ in range(2):
        durable.write_text(tmp_path / "file", "x")
        with durable.new_directory(tmp_path / "place") as folder:
            (folder / "file").write_text("x")
    assert names(tmp_path) == ["file", "place"]


@pytest.mark.parametrize("possible", [True, False])
def test_copies_are_hard_links_where_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, possible: bool
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    if not possible:
        for name in ("link", "utime", "chmod"):
            monkeypatch.setattr(os, name, unknown)
    folder = make(tmp_path / "folder", "x")
    make(folder / "deep", "y")
    files = [folder / "file", folder / "deep" / "file"]
    durable.copy_files(files, folder, tmp_path / "copy", link=True)
    assert (tmp_path / "copy" / "deep" / "file").read_text() == "y"
    assert (tmp_path / "copy" / "file").samefile(folder / "file") == possible


def test_an_error_of_writing_names_the_directory(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="File too large") as error,
        durable.new_directory(tmp_path / "place"),
    ):
        raise OSError(errno.EFBIG, "File too large")
    assert error.value.filename == str(tmp_path / "place")
