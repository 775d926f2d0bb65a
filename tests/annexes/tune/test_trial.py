"""A trial: the words of `nmt train`, and the pace of updates."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import tiny_run

from nmt_cli.annexes.tune import trial
from nmt_cli.annexes.tune.trial import seconds_of_update, words_of_trial
from nmt_cli.training.settings import RunOptions


@pytest.fixture
def request_of(tmp_path: Path) -> dict[str, Any]:
    return {
        "data": ["data"],
        "words": ["data", "--import", "x"],
        "imports": ["x"],
        "init_from": None,
        "settings": {"dropout": 0.2, "device": "cpu"},
        "config": str(tmp_path / "settings"),
        "out": str(tmp_path / "run"),
    }


def test_steps_are_as_many_as_fit(
    request_of: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "seconds_of_update", lambda options, seconds: 1000.0)
    config, out = request_of["config"], request_of["out"]
    words = words_of_trial({**request_of, "deadline": time.time() + 1e6})
    assert words == ["train", "data", "--import", "x", f"--config={config}", f"--out={out}"]
    settings = json.loads(Path(config).read_text())
    assert settings["dropout"] == 0.2
    assert 890 <= settings["max_steps"] <= 900
    assert settings["warmup_steps"] == settings["max_steps"] // 10
    with pytest.raises(SystemExit, match="too slow"):
        words_of_trial({**request_of, "deadline": time.time() + 1e4})


def test_a_trial_that_has_begun_is_resumed(request_of: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").touch()
    assert words_of_trial(request_of) == [
        *("train", "--resume", request_of["out"], "--device", "cpu")
    ]


def test_pace_of_a_run_that_is_not_written(tiny_data: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(tiny_run.TINY))
    options = RunOptions((str(tiny_data),), tmp_path / "run", config=config)
    start = time.perf_counter()
    assert 0 < seconds_of_update(options, 0.0) < time.perf_counter() - start
    assert not (tmp_path / "run").exists()
