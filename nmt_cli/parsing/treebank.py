"""Where a treebank's trees lie: a file, or a folder of files as the Penn Treebank has them (`wsj/02/wsj_0201.mrg`)."""

from __future__ import annotations

from pathlib import Path

from nmt_cli.errors import DataError
from nmt_cli.files.text import check_regular

ENDINGS = (".mrg", ".parse", ".ptb")
"""What files of trees are called, with or without `.gz` after it. In a folder, all other files are left alone."""


def treebank_files(name: str) -> list[Path]:
    """The file `name`, or else `name.gz`, or all files of trees in the folder `name` and below it, sorted by path.

    Raises:
        DataError: there is no such file or folder, or the folder holds no file of trees.
    """
    path = Path(name)
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if _is_of_trees(p))
        if not found:
            raise DataError(f"{path}: no file in this folder, or below it, ends in {', '.join(ENDINGS)} (or with .gz)")
        return found
    for candidate in (path, Path(f"{path}.gz")):
        if candidate.exists():
            check_regular(candidate)
            return [candidate]
    raise DataError(f"{path}: there is no such file of trees, nor {path.name}.gz, nor a folder of that name")


def _is_of_trees(path: Path) -> bool:
    return path.is_file() and path.name.removesuffix(".gz").endswith(ENDINGS)
