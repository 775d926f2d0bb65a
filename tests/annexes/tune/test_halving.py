"""Successive halving, with trials that write their result at once."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.annexes.tune import halving
from nmt_cli.annexes.tune.halving import Halving, counts, places_of, seconds_of_trial
from nmt_cli.errors import Interrupted, TrainingError, UsageError

# The value of a trial is its setting `dropout`, with seed 2 half of it. A text is what it does.
TRIAL = """
import json, os, pathlib, sys
request = json.loads(sys.argv[1])
settings = request["settings"]
value = settings["dropout"]
if isinstance(value, str):
    exec(value)
out = pathlib.Path(request["out"])
out.mkdir()
if isinstance(value, float):
    value /= settings["seed"]
summary = {"best_validation_loss": value, "best_validation_bleu": value}
(out / "summary.json").write_text(json.dumps(summary))
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halving, "PROGRAM", TRIAL)
    monkeypatch.setattr(halving, "available_cores", lambda: 2)


@pytest.fixture
def search(tmp_path: Path) -> Callable[..., Halving]:
    """Begin a search, or go on with it."""

    def begin(*values: Any, measure: str = "loss", minutes: float = 60.0) -> Halving:
        trials = {str(number): {"dropout": value} for number, value in enumerate(values, 1)}
        begun = {"candidates": trials, "measure": measure, "minutes": minutes}
        return Halving(tmp_path / "out", begun, {"settings": {}}, [])

    return begin


@pytest.mark.parametrize(
    ("number", "expected"), [(27, [27, 9, 3, 2, 2]), (9, [9, 3, 2, 2]), (4, [4, 2, 2]), (2, [2, 2])]
)
def test_a_third_goes_on_and_the_last_two_have_two_seeds(number: int, expected: list[int]) -> None:
    assert counts(number) == expected


def test_rungs_take_equal_times() -> None:
    """With as many trials at once as there are cores or GPUs."""
    assert seconds_of_trial(400, [9, 3, 2, 2], []) == 20  # five times two
    assert seconds_of_trial(300, [3, 2, 2], []) == 50
    assert seconds_of_trial(400, [9, 3, 2, 2], ["0", "1", "2"]) == pytest.approx(100 / 3)
    assert places_of([], 1) == [{"OMP_NUM_THREADS": "2"}]
    assert places_of([], 5) == [{"OMP_NUM_THREADS": "1"}] * 2
    assert places_of(["4", "7"], 5) == [{"CUDA_VISIBLE_DEVICES": name} for name in "47"]


@pytest.mark.parametrize(("measure", "order"), [("loss", "416253"), ("bleu", "352614")])
def test_the_best_are_trained_on(search: Callable[..., Halving], measure: str, order: str) -> None:
    trials = search(0.3, 0.5, 0.9, 0.1, 0.6, 0.4, measure=measure)
    trials.search()
    assert [len(rung["results"]) for rung in trials.rungs] == [6, 2, 2]
    assert "".join(trials.order()) == order
    best = order[0]
    first, second = (rung["results"][best] for rung in trials.rungs[1:])
    assert second == pytest.approx((first + first / 2) / 2)  # the mean over seeds


def test_a_trial_that_fails_drops_out(search: Callable[..., Halving]) -> None:
    failing = [
        "sys.exit('nmt: out of memory')",
        "os.kill(os.getpid(), 9)",
        "value = None",
        0.2,
        0.3,
    ]
    trials = search(*failing)
    trials.search()
    assert trials.rungs[0]["results"] == {
        "1": "out of memory",
        "2": "killed, as systems do that are out of memory",
        "3": "its validation is not finite",
        "4": 0.2,
        "5": 0.3,
    }
    assert trials.order()[:2] == ["4", "5"]


def test_a_trial_that_takes_too_long_is_stopped(
    search: Callable[..., Halving], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halving, "MOST_TIMES", 0)
    endless = "import time; time.sleep(1000)"
    with pytest.raises(TrainingError, match="no trial has a result"):
        search(endless, endless).search()


def test_a_full_disk_stops_the_search(search: Callable[..., Halving]) -> None:
    full = "sys.exit('nmt: x: ' + os.strerror(28))"
    with pytest.raises(TrainingError, match="No space left"):
        search(full, full).search()


def test_nothing_is_trained_twice(search: Callable[..., Halving], tmp_path: Path) -> None:
    values = (0.3, 0.5, 0.9, 0.1)
    search(*values).search()
    before = json.loads((tmp_path / "out" / "tune.json").read_text())
    record = json.loads(json.dumps(before))
    del record["rungs"][2]["results"]["4"]
    (tmp_path / "out" / "tune.json").write_text(json.dumps(record))
    (tmp_path / "out" / "trials" / "3-4" / "summary.json").unlink()
    (tmp_path / "out" / "trials" / "3-4").rmdir()
    resumed = search(*values)
    resumed.search()  # a directory that is there would be an error
    assert resumed.rungs == before["rungs"]
    assert 0 <= before["seconds"] <= record["seconds"] + 1


def test_a_signal_ends_trials_and_the_same_search_goes_on(
    search: Callable[..., Halving], tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    waiting = f"""if True:
        import time
        pathlib.Path({str(begun)!r}).touch()
        while not pathlib.Path({str(begun)!r} + "2").exists():
            time.sleep(0.1)
        value = 0.1
    """

    def interrupt() -> None:
        while not begun.exists():
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted, match="same command") as stopped:
        search(waiting, 0.5).search()
    thread.join()
    assert stopped.value.exit_code == 130
    begun.with_name("begun2").touch()
    resumed = search(waiting, 0.5)
    resumed.search()
    assert resumed.order() == ["1", "2"]


def test_another_search_or_directory_is_refused(
    search: Callable[..., Halving], tmp_path: Path
) -> None:
    search(0.1, 0.2).search()
    with pytest.raises(UsageError, match=r"other minutes"):
        search(0.1, 0.2, minutes=30)
    (tmp_path / "out" / "tune.json").unlink()
    with pytest.raises(UsageError, match="not a directory of nmt tune"):
        search(0.1, 0.2)


def test_two_searches_at_once_are_refused(search: Callable[..., Halving], tmp_path: Path) -> None:
    trials = search(0.1, 0.2)
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="still running"):
            trials.search()
