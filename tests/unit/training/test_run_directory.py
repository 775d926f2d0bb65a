"""The files of a run: what is refused, what is deleted, and the thread that writes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import tiny_run

from nmt_cli import checkpoint
from nmt_cli.errors import UsageError
from nmt_cli.training.run_directory import RunDirectory

run = partial(tiny_run.run, max_steps=2, save_every=1, validate_every=1, log_every=1)

PATIENCE = 60
"""Seconds until a test fails that would wait for ever."""


def test_one_job_at_a_time(tmp_path: Path) -> None:
    directory, done = RunDirectory(tmp_path), []
    begun, may_end = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        assert may_end.wait(PATIENCE)
        done.append("first")

    directory.write(first)
    assert begun.wait(PATIENCE)
    directory.check()  # does not wait
    threading.Timer(0.05, may_end.set).start()
    directory.write(lambda: done.append("second"))
    assert done[0] == "first"
    directory.release()
    assert done == ["first", "second"]


@pytest.mark.parametrize("name", [".lock", "config.json", "metrics.jsonl", "summary.json"])
@pytest.mark.parametrize("make", [Path.symlink_to, lambda path, _: os.mkfifo(path)])
def test_files_of_a_run_are_regular_files(
    tmp_path: Path, name: str, make: Callable[[Path, Path], None]
) -> None:
    """A link empties or replaces nothing that it leads to, and a pipe is not waited for."""
    (tmp_path / "thesis").write_text("mine")
    place = tmp_path / "run"
    place.mkdir()
    make(place / name, tmp_path / "thesis")
    directory = RunDirectory(place)
    with pytest.raises(UsageError, match=f"{name}: this is a "):
        directory.claim({})
    directory.release()
    assert (tmp_path / "thesis").read_text() == "mine"
    assert [path.name for path in place.iterdir()] == [name]


def test_a_refused_run_is_not_touched(tiny_data: Path, tmp_path: Path) -> None:
    """It was started with other settings."""
    run(tiny_data, tmp_path / "run")
    (tmp_path / "run" / ".lock").unlink()
    (tmp_path / "run" / ".metrics.jsonl.123.part").write_text("half")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="other settings"):
        run(tiny_data, tmp_path / "run", d_ff=20)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_log_in_its_directory_does_not_stop_a_run(tiny_data: Path, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("mine")
    run(tiny_data, tmp_path)
    assert (tmp_path / "train.log").read_text() == "mine"


def test_a_checkpoint_with_files_of_the_users_is_not_deleted(
    tiny_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`nmt translate RUN/best --output RUN/best/test.de` writes into a checkpoint."""
    out = tmp_path / "run"
    run(tiny_data, out)
    first = checkpoint.checkpoints_of(out)[0]
    (first / "test.de").write_text("mine")
    (first / ".DS_Store").write_text("nobody's")
    run(tiny_data, out, max_steps=3, keep_last=1)
    assert [path.name for path in checkpoint.checkpoints_of(out)] == ["step-00000003"]
    assert (out / "checkpoints" / f"kept-{first.name}" / "test.de").read_text() == "mine"
    assert f"renamed to kept-{first.name}: test.de is in it" in capfd.readouterr().err


def test_what_others_keep_beside_checkpoints_stays(tiny_data: Path, tmp_path: Path) -> None:
    """RUN/checkpoints is often a link to a directory on another disk."""
    scratch, out = tmp_path / "scratch", tmp_path / "run"
    out.mkdir()
    (out / "checkpoints").symlink_to(scratch)
    scratch.mkdir()
    mine = [
        ".venv.old",
        ".venv.part",
        ".trash.gone",
        "best-model",
        ".step-00000001.backup",
        ".x.nmt-old",
    ]
    for name in mine:
        (scratch / name).mkdir()
        (scratch / name / "mine").touch()
    run(tiny_data, out, keep_last=1)
    for name in (".step-00000001.part", ".step-00000001.nmt-gone", ".best-00000001.nmt-part"):
        shutil.copytree(scratch / "step-00000002", scratch / name)
    # By version 1.0, which was killed.
    (scratch / "step-00000002").rename(scratch / ".step-00000002.old")
    run(tiny_data, out, max_steps=3, keep_last=1)
    assert all((scratch / name / "mine").exists() for name in mine)
    best = checkpoint.read_contents(out / "best").step
    assert {path.name for path in scratch.iterdir()} == {*mine, "step-00000003", f"best-{best:08}"}


def test_the_best_checkpoint_without_links(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RUN/best is a copy, which moves on. Where there are links again, it becomes one."""

    def unknown(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    with monkeypatch.context() as patch:
        patch.setattr(os, "symlink", unknown)
        for steps in (2, 3):
            run(tiny_data, tmp_path, max_steps=steps)
            assert not (tmp_path / "best").is_symlink()
            (best,) = (tmp_path / "checkpoints").glob("best-*")
            checkpoint.verify(tmp_path / "best")
            assert checkpoint.read_contents(tmp_path / "best") == checkpoint.read_contents(best)
    run(tiny_data, tmp_path, max_steps=4)
    assert (tmp_path / "best").is_symlink()
    assert [path.name for path in tmp_path.glob(".best*")] == []


@pytest.mark.parametrize("change", ["another run", "a file more", "a file"])
def test_a_folder_of_the_user_in_the_place_of_the_best_stays(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    out = tmp_path / "run"
    run(tiny_data, out)
    copy = shutil.copytree(out / "best", tmp_path / "copy")
    (out / "best").unlink()
    copy.rename(out / "best")
    if change == "another run":
        config = json.loads((out / "best" / "config.json").read_text())
        (out / "best" / "config.json").write_text(json.dumps(config | {"run": "another"}))
    elif change == "a file more":
        (out / "best" / "notes").write_text("mine")
    else:
        shutil.rmtree(out / "best")
        (out / "best").write_text("mine")
    before = {
        path: path.read_bytes()
        for path in [out / "best", *(out / "best").rglob("*")]
        if path.is_file()
    }
    run(tiny_data, out, max_steps=3)
    assert f"{out / 'best'} is not a checkpoint of this run" in capsys.readouterr().err
    assert all(path.read_bytes() == content for path, content in before.items())


def test_metrics_are_json_and_damaged_lines_are_dropped(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    deep = "[" * 200_000
    metrics.write_text(
        "\n".join(
            [lines[0].replace('"lr":', '"x": NaN, "lr":'), deep, '{"step": NaN}', *lines[1:], ""]
        )
    )
    run(tiny_data, tmp_path, max_steps=3)
    assert [line["step"] for line in tiny_run.metrics(tmp_path)] == [0, 1, 2, 3][
        -len(tiny_run.metrics(tmp_path)) :
    ]
    directory = RunDirectory(tmp_path / "new")
    directory.path.mkdir()
    directory.append_metrics({"step": 1, "loss": float("nan"), "nested": [float("inf"), 1.5]})
    directory.write_summary({"best": float("-inf")})
    directory.release()
    assert (
        tmp_path / "new" / "metrics.jsonl"
    ).read_text() == '{"step": 1, "loss": null, "nested": [null, 1.5]}\n'
    assert json.loads((tmp_path / "new" / "summary.json").read_text()) == {"best": None}
