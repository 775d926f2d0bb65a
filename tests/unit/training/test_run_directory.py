"""The thread that writes: one job at a time, whose error is not lost, and nothing is unlocked before its end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from nmt_cli.training.run_directory import RunDirectory

PATIENCE = 60
"""Seconds until a test fails that would wait for ever."""


def fail() -> None:
    raise OSError("no room")


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


def test_an_error_is_raised_by_whatever_comes_next(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    for call in (directory.wait, lambda: directory.write(fail)):
        directory.write(fail)
        with pytest.raises(OSError, match="no room"):
            call()
        directory.wait()  # raised once, and the second job was not started
    directory.write(fail)
    while directory._writing is not None:
        try:
            directory.check()
        except OSError:
            break
    assert directory._writing is None
    directory.release()
