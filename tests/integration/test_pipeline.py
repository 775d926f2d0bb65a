"""From raw text to a score by the real commands, on a task with a known answer.

They run without the annexes.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from annexes import ANNEXES, copy_without
from forked_nmt import MODULES
from number_names import name

Nmt = Callable[..., subprocess.CompletedProcess[str]]

COMPILER = "torch._dynamo"
"""PyTorch's compiler, whose import takes more than a second."""


@pytest.fixture(scope="module")
def averaged(core: Nmt, run: Path) -> Path:
    core("average", run, "--last", 4, "--out", run / "averaged")
    return run / "averaged"


@pytest.fixture(scope="module")
def hypotheses(core: Nmt, averaged: Path, corpus: Path) -> Path:
    path = averaged.parent / "hypotheses"
    source = (corpus / "test.en").read_text(encoding="utf-8")
    path.write_text(
        core("translate", averaged, "--beam", 4, "--alpha", 0.6, stdin=source).stdout,
        encoding="utf-8",
    )
    return path


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_unseen_numbers_are_translated(corpus: Path, hypotheses: Path) -> None:
    output, reference = lines(hypotheses), lines(corpus / "test.de")
    assert len(output) == 200
    assert sum(h == r for h, r in zip(output, reference, strict=True)) >= 180


def test_score_reports_what_the_files_say(core: Nmt, corpus: Path, hypotheses: Path) -> None:
    metrics = ("--metric", "sacrebleu-char", "--metric", "chrf", "--json")
    scores = json.loads(core("score", hypotheses, "--ref", corpus / "test.de", *metrics).stdout)[
        "scores"
    ]
    assert [score["metric"] for score in scores] == ["sacrebleu-char", "chrf"]
    assert all(95 < score["score"] <= 100 and score["signature"] for score in scores)
    perfect = json.loads(
        core("score", corpus / "test.de", "--ref", corpus / "test.de", *metrics).stdout
    )["scores"]
    assert [score["score"] for score in perfect] == [100, 100]


def test_the_prepared_test_text_needs_no_file_of_the_user(
    core: Nmt, run: Path, averaged: Path, hypotheses: Path, corpus: Path
) -> None:
    search = ("--beam", 4, "--alpha", 0.6)
    output = core("translate", averaged, "--test", *search).stdout
    assert output == hypotheses.read_text(encoding="utf-8")
    expected = core("score", hypotheses, "--ref", corpus / "test.de", "--metric", "chrf").stdout
    assert core("score", "-", "--ref", run, "--metric", "chrf", stdin=output).stdout == expected


def test_the_perplexity_of_the_validation_text_is_that_of_training(
    nmt: Nmt, run: Path, corpus: Path
) -> None:
    records = [json.loads(line) for line in lines(run / "metrics.jsonl")]
    best = min(records, key=lambda record: record.get("validation_loss", math.inf))
    done = nmt(
        "score-targets",
        run / "best",
        "--input",
        corpus / "valid.en",
        "--target",
        corpus / "valid.de",
    )
    match = re.search(r"^perplexity (\S+) on ", done.stderr, re.MULTILINE)
    assert match is not None
    assert float(match[1]) == pytest.approx(best["validation_perplexity"], abs=1e-4)


def test_metrics_file_follows_the_contract(run: Path) -> None:
    records = [json.loads(line) for line in lines(run / "metrics.jsonl")]
    assert all(
        {"step", "loss", "lr", "target_tokens_per_second"} <= record.keys() for record in records
    )
    assert records[-1]["step"] == 400
    assert any(record.get("validation_perplexity", 99.0) < 1.5 for record in records)


def test_checkpoints_hold_all_that_is_needed(core: Nmt, averaged: Path, tmp_path: Path) -> None:
    """Moved elsewhere, without data and run, a checkpoint still translates."""
    moved = tmp_path / "moved"
    averaged.rename(moved)
    try:
        done = core(
            "translate", moved, stdin=f"{name(42, 'en')}\n", **{MODULES: str(tmp_path / "modules")}
        )
    finally:
        moved.rename(averaged)
    assert done.stdout == f"{name(42, 'de')}\n"
    assert COMPILER not in (tmp_path / "modules").read_text().split()
    assert list(averaged.glob("*.safetensors"))


@pytest.mark.parametrize("annex", ANNEXES)
def test_each_annex_can_be_taken_away(
    core: Nmt, annex: str, averaged: Path, tmp_path: Path
) -> None:
    rest = copy_without([annex], tmp_path)
    done = core("translate", averaged, stdin=f"{name(42, 'en')}\n", PYTHONPATH=str(rest))
    assert done.stdout == f"{name(42, 'de')}\n"


def test_python_gives_what_the_command_gives(
    averaged: Path, corpus: Path, hypotheses: Path
) -> None:
    import nmt_cli

    sentences = lines(corpus / "test.en")[:40]
    assert nmt_cli.load(averaged).translate(sentences) == lines(hypotheses)[:40]


def test_a_run_needs_no_compiler_and_ends_once(training: tuple[Path, list[str], str]) -> None:
    _, modules, again = training
    assert "nmt_cli.training.trainer" in modules
    assert COMPILER not in modules
    assert "already finished at step 400" in again
