"""Models of other programs, imported by `nmt import`, and what those programs computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt_cli
from nmt_cli.annexes.search.scoring import token_log_probabilities
from nmt_cli.weights import load_model

Run = Callable[..., tuple[int, str, str]]


def imported(nmt: Run, path: Path, *options: object) -> tuple[Any, Any]:
    code, _, err = nmt("import", path, "--out", path.parent / "imported", *options)
    assert code == 0, err
    return load_model(path.parent / "imported")


def log_probabilities(model: Any, task: Any, source: str, target: str) -> list[float]:
    ids = [task.encode_source(source)], [task.encode_target(target)]
    return token_log_probabilities([model], *ids, torch.device("cpu"), batch_tokens=1000)[0]


def check_import(
    nmt: Run,
    path: Path,
    out: Path,
    options: Sequence[object],
    examples: Sequence[Mapping[str, Any]],
) -> None:
    """Import `path` as `out`: greedy outputs and log-probabilities are the other program's."""
    code, stdout, err = nmt("import", path, "--out", out, *options)
    assert (code, stdout) == (0, "")
    assert "en to de" in err
    translator = nmt_cli.load(out, device="cpu")
    assert list(translator.translate([example["source"] for example in examples], beam=1)) == [
        example["output"] for example in examples
    ]
    model, task = load_model(out)
    for example in examples:
        log_probs = log_probabilities(model, task, example["source"], example["output"])
        assert log_probs == pytest.approx(example["log_probabilities"], abs=1e-4)
