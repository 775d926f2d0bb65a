"""Damaged checkpoints are named and renamed, and the run resumes exactly from the newest intact."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.unlink()  # two checkpoints of a step share their files
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "bit in the weights": (flip_a_bit, "model.safetensors"),
    "bit in the optimizer": (flip_a_bit, "training.safetensors"),
    "bit in the cursor": (flip_a_bit, "training.json"),
    "bit in the tokenizer": (flip_a_bit, "task/joint.model"),
    "truncated weights": (truncate, "model.safetensors"),
    "no weights": (Path.unlink, "model.safetensors"),
    "no optimizer": (Path.unlink, "training.safetensors"),
    "no checksums": (Path.unlink, "checksums.json"),
    "torn checksums": (truncate, "checksums.json"),
    "an empty folder": (empty, ""),
}


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of the undisturbed run."""
    shutil.copytree(whole, tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def test_a_damaged_newest_checkpoint(
    forks: Any,
    tiny_data: Path,
    whole: Path,
    run: Path,
    tmp_path: Path,
    check_same: Callable[..., None],
    rounds: Any,
) -> None:
    """Both the checkpoint of --save-every and the best one, of the same step."""
    newest = [run / "checkpoints" / f"{kind}-00000012" for kind in ("step", "best")]
    chosen, aside = list(DAMAGES)[:: rounds(4, 1)], tmp_path / "damaged"
    aside.mkdir()
    for what in chosen:
        damage, name = DAMAGES[what]
        for folder in newest:
            damage(folder / name)
        started = forks.train(tiny_data, run)
        started.code(0)
        for folder in newest:
            assert str(folder / (name or "checksums.json")) in started.err
        assert str(run / "checkpoints" / "step-00000010") in started.err
        for path in (run / "checkpoints").glob("damaged-*"):  # renamed, not deleted
            path.rename(aside / f"{what}, {path.name}")
        check_same(f"a damaged newest checkpoint: {what}", whole, run)
    assert len(list(aside.iterdir())) == 2 * len(chosen)


def test_every_checkpoint_is_damaged(forks: Any, tiny_data: Path, run: Path) -> None:
    for weights in run.rglob("model.safetensors"):
        truncate(weights)
    started = forks.train(tiny_data, run)
    started.code(1)
    assert str(run / "checkpoints") in started.err
    assert len(list((run / "checkpoints").glob("step-*"))) == 3


def test_a_damaged_best_checkpoint(
    forks: Any, tiny_data: Path, whole: Path, run: Path, check_same: Callable[..., None]
) -> None:
    (best,) = (run / "checkpoints").glob("best-*")
    flip_a_bit(best / "model.safetensors")
    translated = forks.start("translate", run / "best", "--input", tiny_data / "valid.source.txt")
    translated.code(1)
    assert str(run / "best" / "model.safetensors") in translated.err
    started = forks.train(tiny_data, run)
    started.code(0)
    assert str(best / "model.safetensors") in started.err
    check_same("a damaged best checkpoint", whole, run)


def test_a_damaged_corpus(forks: Any, tiny_data: Path, tmp_path: Path, rounds: Any) -> None:
    for name in ["train.source.ids", "valid.target.offsets", "train.target.ids"][: rounds(1, 3)]:
        data = tmp_path / name
        shutil.copytree(tiny_data, data)
        flip_a_bit(data / name)
        started = forks.train(data, tmp_path / "run")
        started.code(1)
        assert str(data / name) in started.err
        assert not (tmp_path / "run").exists()
