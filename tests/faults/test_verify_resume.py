"""`nmt train --verify-resume` tells a run that resumes exactly from one that does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_run

from nmt_cli import registry

Nmt = Callable[..., tuple[int, str, str]]

FORGETFUL = '''
"""An optimizer whose behaviour depends on what no checkpoint holds: how many steps this process has made."""
from dataclasses import dataclass
import torch
from nmt_cli.registry import register

@dataclass(frozen=True)
class ForgetfulConfig:
    pass

@register("optimizer", "forgetful", ForgetfulConfig)
class Forgetful(torch.optim.SGD):
    def __init__(self, config, *, parameters):
        super().__init__(parameters, lr=0.1)
        self.steps_of_this_process = 0

    def step(self, closure=None):
        self.steps_of_this_process += 1
        for group in self.param_groups:
            group["lr"] /= self.steps_of_this_process
        return super().step(closure)
'''


def test_a_run_that_resumes_exactly(nmt: Nmt, tiny_data: Path, tmp_path: Path) -> None:
    """Also if it draws variants of its sentences: each start is another process."""
    flags = tiny_run.flags(bpe_dropout=0.2, noise="typos=0.3")
    code, out, err = nmt("train", tiny_data, "--out", tmp_path / "run", *flags, "--verify-resume")
    assert code == 0, err
    assert out.startswith("verified: ")
    assert list(tmp_path.iterdir()) == []  # nothing is kept


@pytest.mark.skipif(os.environ.get("NMT_FAULTS") != "long", reason="only in the long form: make faults")
def test_a_run_that_does_not(nmt: Nmt, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.discover()
    monkeypatch.setattr(registry, "_components", {kind: dict(own) for kind, own in registry._components.items()})
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    own = ("--import", "forgetful", "--optimizer", "forgetful", "--verify-resume")
    code, _, err = nmt("train", tiny_data, "--out", tmp_path / "run", *tiny_run.flags(), *own)
    assert (code, "differs from an uninterrupted one in checkpoints/" in err) == (1, True)
