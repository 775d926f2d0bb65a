"""Which files of a treebank are for training, dev and test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "recipes" / "treebank.py"


def treebank(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def write(path: Path, *words: str) -> Path:
    """A file with a tree for each word."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"( (NP-SBJ (NN {word})) )\n" for word in words), encoding="utf-8")
    return path


def penn_treebank(folder: Path) -> Path:
    """The layout of LDC99T42, a tree a section in the merged files, and another in files that must not be read."""
    for section in range(25):
        write(folder / f"parsed/mrg/wsj/{section:02}/wsj_{section:02}00.mrg", f"w{section}")
        write(folder / f"parsed/prd/wsj/{section:02}/wsj_{section:02}00.prd", "wrong")
    write(folder / "parsed/mrg/brown/cf/cf01.mrg", "brown")
    return folder


def collected(out: Path) -> dict[str, list[str]]:
    """The words of each split."""
    lines = {
        split: (out / f"{split}.ptb").read_text(encoding="utf-8").split("\n")[:-1] for split in ("train", "dev", "test")
    }
    return {split: [line.split(" ")[-1].rstrip(")") for line in found] for split, found in lines.items()}


@pytest.mark.parametrize("inner", ["", "parsed/mrg/wsj"])
def test_the_papers_sections(inner: str, tmp_path: Path) -> None:
    top = penn_treebank(tmp_path / "ldc")
    done = treebank("wsj", 0, tmp_path / "out", top / inner)
    assert done.returncode == 0, done.stderr
    assert collected(tmp_path / "out") == {"train": [f"w{n}" for n in range(2, 22)], "dev": ["w22"], "test": ["w23"]}
    assert (tmp_path / "out/dev.ptb").read_text() == "(TOP (NP (NN w22)))\n"


def test_splits_by_name(tmp_path: Path) -> None:
    bank = tmp_path / "bank"
    write(bank / "my.train.mrg", "a", "b", "c")
    write(bank / "my.valid.ptb", "d")
    write(bank / "test/one.mrg", "e")
    write(bank / "readme", "f")
    assert treebank("named", 2, tmp_path / "out", bank).returncode == 0
    assert collected(tmp_path / "out") == {"train": ["a", "b"], "dev": ["d"], "test": ["e"]}


def test_without_a_test_set_dev_is_used_with_a_message(tmp_path: Path) -> None:
    files = [write(tmp_path / "x.train.ptb", "a"), write(tmp_path / "x.dev.ptb", "b")]
    done = treebank("named", 0, tmp_path / "out", *files)
    assert "dev set is also the test set" in done.stderr
    assert collected(tmp_path / "out")["test"] == ["b"]


@pytest.mark.parametrize(
    ("kind", "names", "message"),
    [
        ("named", ["x.train.ptb"], "contains dev"),
        ("named", ["trees.ptb"], "must contain one of"),
        ("named", ["train.test.ptb"], "must contain one of"),
        ("wsj", ["wsj/23/a.mrg"], "23/a.mrg"),
        ("wsj", ["wsj/02/a.mrg"], "no directory wsj/23"),
    ],
)
def test_wrong_splits_are_errors(kind: str, names: list[str], message: str, tmp_path: Path) -> None:
    files = [write(tmp_path / name, "a") for name in names]
    paths = files if kind == "named" or message.startswith("23") else [tmp_path]
    done = treebank(kind, 0, tmp_path / "out", *paths)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
