"""A directory appears only when complete, and nothing else is replaced."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from nmt_cli.errors import UsageError
from nmt_cli.files.staging import staged
from nmt_cli.training.run_directory import RunDirectory


def stage(out: Path, overwrite: bool = False) -> AbstractContextManager[Path]:
    return staged(out, overwrite=overwrite, allowed=("manifest", "data"), marker="manifest")


def fill(folder: Path, content: str) -> None:
    (folder / "manifest").write_text(content)
    (folder / "data").mkdir()
    (folder / "data" / "file").write_text(content)


def fail_half_way(out: Path, error: type[BaseException], overwrite: bool = False) -> None:
    with stage(out, overwrite) as folder:
        fill(folder, "half")
        raise error


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("empty", [True, False])
def test_directory_appears_at_the_end(tmp_path: Path, empty: bool) -> None:
    out = tmp_path / "deep" / "out"
    if empty:
        out.mkdir(parents=True)
    with stage(out) as folder:
        fill(folder, "new")
        assert not out.exists() or not names(out)
    assert (out / "data" / "file").read_text() == "new"
    assert names(out) == {"manifest", "data"}
    assert names(out.parent) == {"out"}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        fail_half_way(tmp_path / "out", error)
    assert names(tmp_path) == set()


def test_finished_folder_is_replaced_only_on_request(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with stage(out) as folder:
        fill(folder, "old")
    with pytest.raises(UsageError, match="--overwrite"), stage(out):
        pytest.fail("must not be entered")
    with pytest.raises(ZeroDivisionError):
        fail_half_way(out, ZeroDivisionError, overwrite=True)
    assert (out / "data" / "file").read_text() == "old"
    with stage(out, overwrite=True) as folder:
        fill(folder, "new")
        assert (out / "manifest").read_text() == "old"
    assert (out / "manifest").read_text() == "new"
    assert names(tmp_path) == {"out"}


@pytest.mark.parametrize("foreign", [["thesis.tex"], ["manifest", "thesis.tex"], ["data"]])
def test_foreign_folder_is_never_replaced(tmp_path: Path, foreign: list[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in foreign:
        (out / name).write_text("mine")
    with pytest.raises(UsageError, match="in use"), stage(out, overwrite=True):
        pytest.fail("must not be entered")
    assert names(out) == set(foreign)


def test_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with (
        pytest.raises(UsageError, match="not a directory"),
        stage(tmp_path / "out", overwrite=True),
    ):
        pytest.fail("must not be entered")
    with (
        pytest.raises(UsageError, match=r"deeper: .*out: File exists$"),
        stage(tmp_path / "out" / "deeper"),
    ):
        pytest.fail("must not be entered")
    assert (tmp_path / "out").read_text() == "mine"


def test_the_root_directory_is_not_replaced() -> None:
    with pytest.raises(UsageError, match="--out /: the root"), stage(Path("/")):
        pytest.fail("must not be entered")


HALF_WAY = """
import sys, time
from pathlib import Path
from nmt_cli.files.staging import staged
with staged(Path(sys.argv[1]), overwrite=False, allowed=("manifest",), marker="manifest") as folder:
    (folder / "manifest").write_text("half")
    (folder / "junk").mkdir()
    print("ready", flush=True)
    time.sleep(60)
"""


def test_one_writer_at_a_time_and_a_killed_one_is_cleared_away(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-c", HALF_WAY, str(out)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(UsageError, match="another process is writing"), stage(out):
            pytest.fail("must not be entered")
        os.kill(other.pid, signal.SIGKILL)
    assert not out.exists()
    with stage(out) as folder:
        assert "junk" not in names(folder)
        fill(folder, "new")
    assert (out / "manifest").read_text() == "new"
    assert names(tmp_path) == {"out"}


def test_file_systems_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unknown)
    with stage(tmp_path / "out") as folder:
        fill(folder, "new")
    assert names(tmp_path / "out") == {"manifest", "data"}
    RunDirectory(tmp_path / "run").claim({})
    assert (tmp_path / "run" / "config.json").exists()


def test_a_link_to_a_folder_stays_one(tmp_path: Path) -> None:
    disk, out = tmp_path / "disk", tmp_path / "out"
    with stage(disk) as folder:
        fill(folder, "old")
    out.symlink_to(disk)
    with stage(out, overwrite=True) as folder:
        fill(folder, "new")
    assert out.is_symlink()
    assert (disk / "manifest").read_text() == "new"
    assert names(tmp_path) == {"disk", "out"}


USERS = (".out.old", ".out.part", ".out.gone", ".out.lock", ".out.bak")


@pytest.mark.parametrize("refused", [True, False])
def test_hidden_folders_of_the_user_stay(tmp_path: Path, refused: bool) -> None:
    out = tmp_path / "out"
    for name in USERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").touch()
    if refused:
        out.mkdir()
        (out / "mine").touch()
        with pytest.raises(UsageError, match="in use"), stage(out, overwrite=True):
            pytest.fail("must not be entered")
    else:
        with stage(out) as folder:
            fill(folder, "new")
    assert names(tmp_path) == {"out", *USERS}
    assert all((tmp_path / name / "mine").exists() for name in USERS)


def test_a_killed_replacement_is_undone_before_anything_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".out.nmt-old").mkdir()
    fill(tmp_path / ".out.nmt-old", "old")
    with pytest.raises(UsageError, match="--overwrite"), stage(tmp_path / "out"):
        pytest.fail("must not be entered")
    assert (tmp_path / "out" / "manifest").read_text() == "old"
    assert names(tmp_path) == {"out"}


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_a_user_writes_there_meanwhile_stays(tmp_path: Path, overwrite: bool) -> None:
    out = tmp_path / "out"
    if overwrite:
        with stage(out) as folder:
            fill(folder, "old")

    def write() -> None:
        with stage(out, overwrite) as folder:
            fill(folder, "new")
            out.mkdir(exist_ok=True)
            (out / "notes").touch()

    with pytest.raises(UsageError, match="in use: it contains notes"):
        write()
    assert (out / "notes").exists()
    assert names(tmp_path) == {"out"}


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("mine")
    (tmp_path / ".out.nmt-lock").symlink_to(tmp_path / "thesis")
    with pytest.raises(UsageError, match=r"nmt-lock: this is a link"), stage(tmp_path / "out"):
        pytest.fail("must not be entered")
    assert (tmp_path / "thesis").read_text() == "mine"
    assert (tmp_path / ".out.nmt-lock").is_symlink()
