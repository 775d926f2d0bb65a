"""The splits of a treebank, for recipes/wsj_parsing.sh.

treebank.py wsj|named|toy MOST OUT PATH...
    write OUT, complete or absent: the cleaned trees of each split, one a line, at most MOST (0:
    all), in {train,dev,test}.ptb

wsj     PATH is the Penn Treebank (LDC99T42), or its directory that holds the sections 00 to 24
named   PATHs are files and directories of trees, or one directory of them, named train, dev (or
        valid) and test
toy     made-up trees
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from report import user_errors, write_lines
from toy_trees import write_treebank

from nmt_cli.annexes.parsing.trees import (
    TREEBANK_ENDINGS,
    read_clean_trees,
    tree_line,
    treebank_files,
)
from nmt_cli.errors import UsageError

# Sections of the Wall Street Journal, as in the paper.
SECTIONS = {"train": range(2, 22), "dev": [22], "test": [23]}
NAMES = {"train": ("train",), "dev": ("dev", "valid", "val"), "test": ("test",)}


def wsj_files(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the files of each split in the Penn Treebank."""
    if len(paths) != 1:
        raise UsageError(f"--ldc takes one directory, not {len(paths)}")
    (root,) = paths
    if not (root / "23").is_dir():
        root = _sections_below(root)
    missing = []
    files: dict[str, list[Path]] = {}
    for split, numbers in SECTIONS.items():
        files[split] = []
        for number in numbers:
            section = root / f"{number:02}"
            if section.is_dir():
                files[split] += treebank_files(str(section))
            else:
                missing.append(section.name)
    if missing:
        raise UsageError(
            f"{root}: the sections {', '.join(missing)} are missing; 02 to 23 are needed"
        )
    return files


def _sections_below(top: Path) -> Path:
    """Return the directory of the sections.

    Merged files, which have tags and brackets, are preferred.
    """
    folders = []
    for path in sorted(top.rglob("23")):
        if path.is_dir() and path.parent.name.lower() == "wsj":
            folders.append(path.parent)
    if not folders:
        raise UsageError(
            f"--ldc {top}: there is no directory wsj/23 in it; parsed/mrg/wsj/00 to 24 are needed"
        )
    for folder in folders:
        if "mrg" in str(folder.relative_to(top)).lower():
            return folder
    return folders[0]


def named_files(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the files of each split by their names. Without a test set, the dev set is used."""
    if len(paths) == 1 and paths[0].is_dir():
        inner = sorted(paths[0].iterdir())
        paths = [path for path in inner if path.is_dir() or _is_treebank(path)]
    files: dict[str, list[Path]] = {split: [] for split in NAMES}
    for path in paths:
        words = set(re.split(r"[^a-z]+", path.name.lower()))
        splits = [split for split, names in NAMES.items() if words & set(names)]
        if len(splits) != 1:
            raise UsageError(
                f"--treebank {path}: the name must contain one of train, dev and test, as "
                "my.train.ptb does"
            )
        files[splits[0]] += treebank_files(str(path))
    for split in ("train", "dev"):
        if not files[split]:
            raise UsageError(
                f"--treebank: no file name contains {' or '.join(NAMES[split])}, as my.{split}.ptb "
                "does"
            )
    if not files["test"]:
        print("no file name contains test: the dev set is also the test set", file=sys.stderr)
        files["test"] = files["dev"]
    return files


def _is_treebank(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(TREEBANK_ENDINGS)


def collect(files: dict[str, list[Path]], most: int, out: Path) -> None:
    """Write the trees of each split."""
    out.mkdir(parents=True, exist_ok=True)
    for split, paths in files.items():
        trees = (placed.tree for path in paths for placed in read_clean_trees(path))
        lines = [tree_line(tree) for tree in itertools.islice(trees, most or None)]
        if not lines:
            raise UsageError(f"{split}: the files hold no trees")
        write_lines(out / f"{split}.ptb", lines)
        print(f"{split}: {len(lines):,} trees of {len(paths):,} files", file=sys.stderr)


def main(kind: str, most: str, out: str, *names: str) -> None:
    unfinished = Path(f"{out}.part")
    if kind == "toy":
        write_treebank(unfinished, train=300, dev=8, test=8)
    else:
        find = {"wsj": wsj_files, "named": named_files}[kind]
        collect(find([Path(name) for name in names]), int(most), unfinished)
    unfinished.rename(out)


if __name__ == "__main__":
    with user_errors():
        main(*sys.argv[1:])
