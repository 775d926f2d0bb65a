"""The trees of a treebank, cleaned, one a line, in a file for each split: what recipes/wsj_parsing.sh begins with.

treebank.py collect wsj|named MOST OUT PATH...   writes OUT/{train,dev,test}.ptb, of at most MOST trees (0: all) each
treebank.py state wsj|named|all PATH...          a line that changes when the files do

wsj     PATH is the folder of the Penn Treebank (LDC99T42), or the one in it that holds the sections 00 to 24
named   PATHs are files and folders of trees, or one folder of them, whose names say train, dev (or valid), test
all     PATHs are files, or folders of trees; they have no splits
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt_cli.errors import NmtError, UsageError
from nmt_cli.files.text import fingerprint
from nmt_cli.parsing.treebank import ENDINGS, treebank_files
from nmt_cli.parsing.trees import read_clean_trees, tree_line

SECTIONS = {"train": range(2, 22), "dev": [22], "test": [23]}
"""Of the Wall Street Journal, as in the paper and nearly all others."""
NAMES = {"train": ("train",), "dev": ("dev", "valid", "val"), "test": ("test",)}


def wsj_files(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """The files of each split in the Penn Treebank.

    Raises:
        UsageError: a section is missing.
        DataError: a section holds no trees.
    """
    if len(paths) != 1:
        raise UsageError(f"--ldc takes one folder, not {len(paths)}")
    (top,) = paths
    root = top if (top / "23").is_dir() else _root_below(top)
    missing = [f"{n:02}" for numbers in SECTIONS.values() for n in numbers if not (root / f"{n:02}").is_dir()]
    if missing:
        raise UsageError(f"{root}: the sections {', '.join(missing)} are not there; 02 to 23 are needed")
    return {
        split: [path for number in numbers for path in treebank_files(str(root / f"{number:02}"))]
        for split, numbers in SECTIONS.items()
    }


def _root_below(top: Path) -> Path:
    """The folder of the sections; the merged files are those that have both tags and brackets."""
    found = sorted(path.parent for path in top.rglob("23") if path.is_dir() and path.parent.name.lower() == "wsj")
    merged = [path for path in found if "mrg" in str(path.relative_to(top)).lower()] or found
    if not merged:
        raise UsageError(f"--ldc {top}: there is no folder wsj/23 in it; it must hold parsed/mrg/wsj/00 to 24")
    return merged[0]


def named_files(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """The files of each split, told apart by their names; no test set means that the dev set serves as one, too.

    Raises:
        UsageError: a name says no split or several, or there is no train or dev.
    """
    if len(paths) == 1 and paths[0].is_dir():
        paths = [p for p in sorted(paths[0].iterdir()) if p.is_dir() or p.name.removesuffix(".gz").endswith(ENDINGS)]
    files: dict[str, list[Path]] = {split: [] for split in NAMES}
    for path in paths:
        files[_split_of(path)] += treebank_files(str(path))
    for split in ("train", "dev"):
        if not files[split]:
            raise UsageError(f"--treebank: no file is named {' or '.join(NAMES[split])}, as in my.{split}.ptb")
    if not files["test"]:
        print("no file is named test: the dev set is the test set, too", file=sys.stderr)
        files["test"] = files["dev"]
    return files


def _split_of(path: Path) -> str:
    words = set(re.split(r"[^a-z]+", path.name.lower()))
    found = [split for split, names in NAMES.items() if words & set(names)]
    if len(found) != 1:
        raise UsageError(f"--treebank {path}: its name must say one of train, dev and test, as in my.train.ptb")
    return found[0]


def all_files(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """The files themselves, and the files of trees in the folders, all as one.

    Raises:
        DataError: there are none.
    """
    return {"all": [path for name in paths for path in treebank_files(str(name))]}


def collect(files: dict[str, list[Path]], most: int, out: Path) -> None:
    """Writes each split's trees, and says how many there are."""
    out.mkdir(parents=True, exist_ok=True)
    for split, paths in files.items():
        trees = (placed.tree for path in paths for placed in read_clean_trees(path))
        lines = [tree_line(tree) for tree in itertools.islice(trees, most or None)]
        if not lines:
            raise UsageError(f"{split}: the files hold no trees")
        (out / f"{split}.ptb").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
        print(f"{split}: {len(lines):,} trees of {len(paths):,} files", file=sys.stderr)


def state(files: dict[str, list[Path]]) -> str:
    """A short line that stands for names and contents of the files, wherever they lie."""
    contents = [(split, path.name, fingerprint(path)) for split, paths in files.items() for path in paths]
    return hashlib.sha256(repr(contents).encode()).hexdigest()[:16]


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit code."""
    finders = {"wsj": wsj_files, "named": named_files, "all": all_files}
    try:
        if arguments[0] == "state":
            print(state(finders[arguments[1]]([Path(name) for name in arguments[2:]])))
        else:
            _, kind, most, out, *names = arguments
            collect(finders[kind]([Path(name) for name in names]), int(most), Path(out))
    except NmtError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
