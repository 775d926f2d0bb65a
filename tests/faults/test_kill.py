"""SIGKILL at any moment, and the same command again: the result of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from long_form import only_long

SMALL = "--num-layers=1 --d-model=16 --d-ff=32 --num-heads=2"
VARIANTS = {
    "transformer": SMALL,
    "rotary, Muon": (
        f"{SMALL} --attention=rotary --positions=none --optimizer=muon --zero-sublayers "
        "--batch-growth=6"
    ),
    "relative, AdamW": (
        f"{SMALL} --attention=relative --positions=none --optimizer=adamw --ema-decay=0.9"
    ),
    "ALiBi, cosine": f"{SMALL} --attention=alibi --positions=none --schedule=cosine --dropout=0.3",
    "restricted, SGD": f"{SMALL} --attention=restricted --optimizer=sgd --schedule=linear_decay",
    "R-Drop, noise": (
        f"{SMALL} --criterion=r_drop --bpe-dropout=0.1 --noise=typos=0.3 --positions=learned"
    ),
    "expected reward": f"{SMALL} --criterion=expected_reward --samples=2 --max-length-offset=2",
    "best by BLEU": f"{SMALL} --validation-bleu --best-by=bleu",
    "mixture of experts": f"--model=moe_transformer {SMALL} --experts=4",
    "MoE of LSTMs": "--model=moe --d-model=16 --d-hidden=20 --d-ff=24 --experts=4",
    "GNMT": "--model=gnmt --num-layers=2 --d-model=16",
    "ConvS2S": "--model=convs2s --d-model=16 --convolutions=12x3*2,8x1 --decoder-convolutions=12x3",
    "ByteNet": "--model=bytenet --num-layers=2 --d-model=16",
    "Deep-Att": (
        "--model=deep_att --num-layers=2 --num-decoder-layers=2 --d-model=16 --d-embedding=12"
    ),
}
"""Models, attentions, components and settings that keep a state or draw random numbers."""

CHOSEN = [
    pytest.param(name, marks=() if name in ("transformer", "GNMT") else only_long)
    for name in VARIANTS
]


@pytest.mark.parametrize("variant", CHOSEN)
def test_killed_training(
    forks: Any,
    tiny_data: Path,
    tmp_path: Path,
    rounds: Any,
    check_same: Callable[..., None],
    variant: str,
) -> None:
    """Before a change of a file: a checkpoint's, the metrics', the configuration's.

    Or at any other moment.
    """
    few, many = (3, 60) if variant == "transformer" else (1, 36)

    def train(run: Path, **order: Any) -> Any:
        return forks.start(
            "train", tiny_data, "--out", run, *forks.training, *VARIANTS[variant].split(), **order
        )

    whole, run, draw = tmp_path / "whole", tmp_path / "run", random.Random(1)
    undisturbed, begun = train(whole, watched=str(whole)), time.monotonic()
    undisturbed.code(0)
    seconds = time.monotonic() - begun
    for number in range(rounds(few, many)):
        if number % 3 < 2:
            place = draw.randint(1, undisturbed.changes)
            train(run, watched=str(run), kill_at=place).code(-signal.SIGKILL)
        else:
            place, killed = draw.uniform(0, seconds), train(run)
            time.sleep(place)
            killed.send(signal.SIGKILL)
            assert killed.code() in (0, -signal.SIGKILL)
        train(run).code(0)
        check_same(
            f"SIGKILL at {place} of {undisturbed.changes} changes or {seconds} s", whole, run
        )
        shutil.rmtree(run)


def test_leftovers_of_a_kill(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None]
) -> None:
    """They are repaired, even if the run is finished.

    `.old` is the only copy of a checkpoint and is restored, the other hidden ones are deleted, and
    so is an incomplete line of metrics. An incomplete configuration is an error.
    """
    run = tmp_path / "run"
    shutil.copytree(whole, run, symlinks=True)
    (run / "best").unlink()
    (run / "summary.json").unlink()
    checkpoints = run / "checkpoints"
    shutil.copytree(checkpoints / "step-00000012", checkpoints / "step-00000002")
    for leftover in (".part", ".gone"):
        hidden = checkpoints / f".step-00000010{leftover}"
        shutil.copytree(checkpoints / "step-00000010", hidden)
        (hidden / "model.safetensors").write_bytes(b"half")
    (checkpoints / "step-00000012").rename(checkpoints / ".step-00000012.old")
    (run / ".summary.json.123.part").write_bytes(b"half")
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 13, "lo\xff')
    forks.train(tiny_data, run).code(0)
    check_same("SIGKILL between a save and what follows it", whole, run)
    (run / "config.json").write_bytes(b"{")
    other = forks.train(tiny_data, run)
    other.code(2)
    assert str(run / "config.json") in other.err


def test_a_killed_average_keeps_the_earlier_one(
    forks: Any, whole: Path, tmp_path: Path, rounds: Any
) -> None:
    """At any change of a file, the earlier checkpoint is kept or named, or the new one whole."""
    out = tmp_path / "averaged"
    arguments = ("average", whole, "--last", "2", "--out", out, "--overwrite")
    forks.start(*arguments).code(0)
    again = forks.start(*arguments, watched=str(tmp_path))
    again.code(0)
    weights = (out / "model.safetensors").read_bytes()
    places = range(1, again.changes + 1)
    for place in random.Random(8).sample(places, rounds(3, len(places))):
        forks.start(*arguments, watched=str(tmp_path), kill_at=place).code(-signal.SIGKILL)
        if not out.exists():
            tried = forks.start("translate", out, "--input", os.devnull)
            tried.code(1)
            assert "rename" in tried.err
        forks.start(*arguments).code(0)
        assert (out / "model.safetensors").read_bytes() == weights
        assert json.loads((out / "config.json").read_text())["step"] == 12
        assert [path.name for path in tmp_path.iterdir()] == ["averaged"]
