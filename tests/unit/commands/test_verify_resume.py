"""What `nmt train --verify-resume` compares; tests/faults/test_verify_resume.py has it with real runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from nmt_cli import registry
from nmt_cli.commands import verify_resume
from nmt_cli.commands.train_parts import TrainOptions


def test_both_runs_have_the_precision_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial on a busy machine would choose another one the next time."""
    registry.discover()
    trials = itertools.cycle(["bfloat16", "float32"])

    def execute(arguments: Sequence[str], expected: int = 0) -> None:
        given = dict(itertools.pairwise(arguments))
        config = json.loads(Path(given["--config"]).read_text())
        if config["training"]["precision"] == "auto":
            config["training"]["precision"] = next(trials)
        run = Path(given["--out"])
        if not run.exists():
            run.mkdir()
            (run / "config.json").write_text(json.dumps(config))

    monkeypatch.setattr(verify_resume, "execute", execute)
    options = TrainOptions(data=tmp_path, out=tmp_path / "run")
    assert verify_resume.verify_resume(options, {}).startswith("verified: ")
    assert list(tmp_path.iterdir()) == []
