"""Which files of a treebank are for training, dev and test."""

from __future__ import annotations

from pathlib import Path

import pytest
import treebank

from nmt_cli.errors import UsageError


def write(path: Path, *words: str) -> Path:
    """A file with a tree for each word."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"( (NP-SBJ (NN {word})) )\n" for word in words), encoding="utf-8")
    return path


def penn_treebank(folder: Path) -> Path:
    """The layout of LDC99T42: a tree a section in merged files, and one in files not to be read."""
    for section in range(25):
        write(folder / f"parsed/mrg/wsj/{section:02}/wsj_{section:02}00.mrg", f"w{section}")
        write(folder / f"parsed/prd/wsj/{section:02}/wsj_{section:02}00.prd", "wrong")
    write(folder / "parsed/mrg/brown/cf/cf01.mrg", "brown")
    return folder


def collected(out: Path) -> dict[str, list[str]]:
    """The words of each split."""
    lines = {
        split: (out / f"{split}.ptb").read_text(encoding="utf-8").split("\n")[:-1]
        for split in ("train", "dev", "test")
    }
    return {
        split: [line.split(" ")[-1].rstrip(")") for line in lines_of_split]
        for split, lines_of_split in lines.items()
    }


@pytest.mark.parametrize("inner", ["", "parsed/mrg/wsj"])
def test_the_papers_sections(inner: str, tmp_path: Path) -> None:
    top = penn_treebank(tmp_path / "ldc")
    treebank.main("wsj", "0", str(tmp_path / "out"), str(top / inner))
    assert collected(tmp_path / "out") == {
        "train": [f"w{n}" for n in range(2, 22)],
        "dev": ["w22"],
        "test": ["w23"],
    }
    assert (tmp_path / "out/dev.ptb").read_text() == "(TOP (NP (NN w22)))\n"


def test_splits_by_name(tmp_path: Path) -> None:
    bank = tmp_path / "bank"
    write(bank / "my.train.mrg", "a", "b", "c")
    write(bank / "my.valid.ptb", "d")
    write(bank / "readme", "f")
    treebank.main("named", "2", str(tmp_path / "without"), str(bank))
    write(bank / "test/one.mrg", "e")
    treebank.main("named", "2", str(tmp_path / "out"), str(bank))
    assert collected(tmp_path / "without") == {"train": ["a", "b"], "dev": ["d"], "test": ["d"]}
    assert collected(tmp_path / "out") == {"train": ["a", "b"], "dev": ["d"], "test": ["e"]}


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("named", "x.train.ptb", "contains dev"),
        ("named", "trees.ptb", "must contain one of"),
        ("named", "train.test.ptb", "must contain one of"),
        ("wsj", "wsj/02/a.mrg", "no directory wsj/23"),
        ("wsj", "wsj/23/a.mrg", "02, 03"),
    ],
)
def test_wrong_splits_are_errors(kind: str, name: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, "a")
    with pytest.raises(UsageError, match=message):
        treebank.main(kind, "0", str(tmp_path / "out"), str(path if kind == "named" else tmp_path))
