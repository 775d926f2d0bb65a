"""The thread that writes: one job at a time, and nothing is unlocked before its end."""

from __future__ import annotations

import threading
from pathlib import Path

from nmt_cli.training.run_directory import RunDirectory

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
