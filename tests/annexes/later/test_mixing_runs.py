"""`nmt train --stage` and `--mix-temperature`: messages, length, and exact resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt_cli import checkpoint
from nmt_cli.cli import main
from nmt_cli.weights import load_weights

Run = Callable[..., tuple[int, str, str]]
TINY = (
    "--num-layers 1 --d-model 16 --d-ff 24 --num-heads 2 --batch-tokens 800 --log-every 1 "
    "--device cpu"
).split()
STAGES = (
    "--stage",
    "noisy*0.3 clean*0.5 until 1",
    "--stage",
    "noisy*0.3 until 2",
    "--stage",
    "clean*1.5",
)


@pytest.fixture(scope="module")
def data(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training text of `tiny_data` in two parts."""
    folder = tmp_path_factory.mktemp("mixing")
    for language in ("en", "de"):
        lines = (tiny_data.parent / f"train.{language}").read_text().splitlines(keepends=True)
        for name, part in (("noisy", lines[:700]), ("clean", lines[700:])):
            (folder / f"{name}.{language}").write_text("".join(part))
    words = [
        "--source-lang=en",
        "--target-lang=de",
        f"--train={folder / 'noisy'}",
        f"--train={folder / 'clean'}*2",
    ]
    with pytest.raises(SystemExit) as end:
        main(["prepare", *words, f"--subwords-from={tiny_data}", f"--out={folder / 'data'}"])
    assert not end.value.code
    return folder / "data"


def test_stages_are_resumed_exactly(nmt: Run, data: Path, tmp_path: Path) -> None:
    """From each step, within epochs and between stages."""
    given = ("train", data, *TINY, *STAGES, "--save-every", 1)
    code, _, err = nmt(*given, "--max-epochs", 4, "--out", tmp_path / "whole")
    assert code == 0, err
    for line in (
        "epochs 1 to 1: noisy x 0.3 (210 pairs), clean x 1 (200 pairs)",
        "epochs 2 to 2: noisy x 0.3 (210 pairs)",
        "epoch 3 on: clean x 3 (600 pairs)",
    ):
        assert f"{line}\n" in err
    figures = json.loads(nmt(*given, "--max-epochs", 4, "--dry-run", "--json")[1])
    steps = checkpoint.read_contents(checkpoint.locate(tmp_path / "whole")).step
    assert figures["steps"] == steps > 8
    expected = load_weights(checkpoint.locate(tmp_path / "whole"))
    for step in (1, steps - 1):
        run = tmp_path / f"run-{step}"
        assert nmt(*given, "--max-steps", step, "--out", run)[0] == 0
        assert nmt("train", "--resume", run, "--max-steps", step + 1)[0] == 0
        assert nmt(*given, "--max-steps", 1000, "--max-epochs", 4, "--out", run)[0] == 0
        weights = load_weights(checkpoint.locate(run))
        assert all(torch.equal(weights[name], weight) for name, weight in expected.items())
    code, _, err = nmt(
        "train", data, *TINY, "--mix-temperature", 5, "--max-epochs", 9, "--out", tmp_path / "whole"
    )
    assert (code, "other settings: " in err) == (2, True), err


def test_parts_are_directories_too(nmt: Run, data: Path, tmp_path: Path) -> None:
    """With the sentences that another way of writing the same weights gives, bit for bit."""
    words = ["--source-lang=en", "--target-lang=de", f"--subwords-from={data}"]
    for name in ("noisy", "clean"):
        assert (
            nmt("prepare", *words, f"--train={data.parent / name}", f"--out={tmp_path / name}")[0]
            == 0
        )
    given = ("train", tmp_path / "noisy", tmp_path / "clean", *TINY, "--max-steps", 3)
    assert nmt(*given, "--out", tmp_path / "first", "--stage", "noisy*0.5 clean*2")[0] == 0
    given = (
        "train",
        f"{tmp_path / 'noisy'}*0.5",
        f"{tmp_path / 'clean'}*2",
        *TINY,
        "--max-steps",
        3,
    )
    assert nmt(*given, "--out", tmp_path / "second")[0] == 0
    first, second = (
        load_weights(checkpoint.locate(tmp_path / name)) for name in ("first", "second")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert nmt("train", "--resume", tmp_path / "first", "--max-steps", 4)[0] == 0


def test_a_temperature(nmt: Run, data: Path, tmp_path: Path) -> None:
    code, _, err = nmt(
        "train", data, *TINY, "--max-steps", 1, "--mix-temperature", 1e9, "--out", tmp_path / "run"
    )
    assert (code, "epoch 1 on: noisy x 0.7857 (550 pairs), clean x 2.75 (550 pairs)\n" in err) == (
        0,
        True,
    ), err


def test_errors(nmt: Run, data: Path, tmp_path: Path) -> None:
    for words, message in (
        (
            ["--stage", "noise"],
            "--stage 'noise': no part of the training text is called noise. Did you mean noisy?",
        ),
        (["--mix-temperature", "0.5"], "--mix-temperature must be at least 1"),
    ):
        code, _, err = nmt("train", data, *TINY, *words, "--out", tmp_path / "run")
        assert (code, message in err, (tmp_path / "run").exists()) == (2, True, False), err
    late = ("--stage", "noisy until 3", "--stage", "clean")
    _, _, err = nmt("train", data, *TINY, *late, "--max-epochs", 2, "--dry-run")
    assert "warning: the run has 2 epochs, " in err
