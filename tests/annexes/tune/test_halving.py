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
out.mkdir(exist_ok=True)
with (out / "trained").open("a") as file:
    file.write("once")
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
    seconds = [seconds_of_trial(20, [9, 3, 2, 2], rung, []) for rung in range(4)]
    assert seconds == [60, 150, 300, 300]  # five times two, two times two, two
    assert seconds_of_trial(20, [9, 3, 2, 2], 0, ["0", "1", "2"]) == 100
    assert places_of([], 1) == ["cpu"]
    assert places_of([], 5) == ["cpu", "cpu"]
    assert places_of(["cuda:0", "cuda:1"], 5) == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize(("measure", "order"), [("loss", "416253"), ("bleu", "352614")])
def test_the_best_are_trained_on(search: Callable[..., Halving], measure: str, order: str) -> None:
    trials = search(0.3, 0.5, 0.9, 0.1, 0.6, 0.4, measure=measure)
    trials.search()
    assert [len(rung) for rung in trials.rungs] == [6, 2, 2]
    assert "".join(trials.order()) == order
    best = order[0]
    first, second = (rung[best] for rung in trials.rungs[1:])
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
    assert trials.rungs[0] == {
        "1": "out of memory",
        "2": "killed, as systems do that are out of memory",
        "3": "its validation is not finite",
        "4": 0.2,
        "5": 0.3,
    }
    assert trials.order()[:2] == ["4", "5"]


def test_without_any_result_the_search_fails(search: Callable[..., Halving]) -> None:
    with pytest.raises(TrainingError, match="The first one: too slow"):
        search("sys.exit('too slow')", "value = None").search()


def test_without_results_of_a_later_rung_the_ones_before_decide(
    search: Callable[..., Halving],
) -> None:
    fails_later = "value = 0.1 if request['out'].endswith('1-1') else sys.exit('too slow')"
    also = fails_later.replace("0.1", "0.2").replace("1-1", "1-2")
    trials = search(fails_later, also, 0.4)
    trials.search()
    assert trials.order() == ["1", "2", "3"]
    assert trials.results("1") == [0.1, "too slow"]


def test_a_full_disk_stops_the_search(search: Callable[..., Halving]) -> None:
    full = "sys.exit('nmt: x: ' + os.strerror(28))"
    with pytest.raises(TrainingError, match="No space left"):
        search(full, full).search()


def test_nothing_is_trained_twice(search: Callable[..., Halving], tmp_path: Path) -> None:
    values = (0.3, 0.5, 0.9, 0.1)
    search(*values).search()
    state = tmp_path / "out" / "tune.json"
    before = json.loads(state.read_text())
    forgotten = json.loads(state.read_text())
    del forgotten["rungs"][2]["4"]
    state.write_text(json.dumps(forgotten))
    search(*values).search()
    assert json.loads(state.read_text()) == before
    trained = {path.parent.name: path.read_text() for path in tmp_path.glob("out/trials/*/trained")}
    assert trained.pop("3-4") == "onceonce"
    assert set(trained.values()) == {"once"}
    assert len(trained) == 7


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
    with pytest.raises(UsageError, match="other data, --minutes"):
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
