"""Every registered observer: it changes no update, and a killed run resumes exactly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tiny_run
import torch
from observed import of_run, switched_on, trained

from nmt_cli import checkpoint, registry
from nmt_cli.errors import Interrupted
from nmt_cli.training.run import Run
from nmt_cli.training.run_directory import RunDirectory


class Killed(BaseException):
    """Ends a run as a kill does: nothing more is saved."""


@pytest.fixture(params=registry.names("observer"))
def run(
    request: pytest.FixtureRequest, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Train, by default with the observer."""
    monkeypatch.chdir(tmp_path)
    settings = switched_on(registry.find("observer", request.param))
    return partial(tiny_run.run, tiny_data, max_steps=6, save_every=3, log_every=1, **settings)


def test_it_changes_no_update(
    run: Callable[..., None], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run(tmp_path / "observed")
    name = request.node.callspec.params["run"]
    off = dataclasses.asdict(registry.find("observer", name).config())
    run(tmp_path / "plain", **off)
    expected = trained(tmp_path / "plain")
    observed_weights = trained(tmp_path / "observed")
    assert observed_weights.keys() == expected.keys()
    assert all(torch.equal(observed_weights[name], weight) for name, weight in expected.items())


def test_a_killed_run_resumes_exactly(
    run: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, state and metrics, after a kill two updates past the checkpoint of step 3."""
    run(tmp_path / "whole")
    append = RunDirectory.append_metrics

    def append_and_die(directory: RunDirectory, record: Any) -> None:
        append(directory, record)
        if record["step"] == 5:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "append_metrics", append_and_die)
        with pytest.raises(Killed):
            run(tmp_path / "parts")
    assert checkpoint.read_contents(checkpoint.locate(tmp_path / "parts")).step == 3
    run(tmp_path / "parts")
    assert of_run(tmp_path / "parts") == of_run(tmp_path / "whole")


def test_a_stopped_run_resumes_exactly(
    run: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped when a validation, a log line and a checkpoint are due in the resumed run."""
    run(tmp_path / "whole")
    agree = Run.agree

    def agree_to_stop(self: Run, *flags: bool) -> list[bool]:
        return [self.state.step == 3, *agree(self, *flags)[1:]]

    with monkeypatch.context() as patch:
        patch.setattr(Run, "agree", agree_to_stop)
        with pytest.raises(Interrupted):
            run(tmp_path / "parts")
    assert checkpoint.locate(tmp_path / "parts").name == "latest-00000003"
    run(tmp_path / "parts")
    assert of_run(tmp_path / "parts") == of_run(tmp_path / "whole")
