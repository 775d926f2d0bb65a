"""Break the code in each way that `mutations.toml` lists, and check that its tests then fail.

    python -m tests.mutants [NAME ...]    all mutations, or the named ones, WORKERS (2) at a time

A mutation replaces a text that occurs once in its file, in a temporary copy of the tree. First, the
same tests must pass in a copy without a mutation. The exit code is 1 if a mutation survives or
cannot be tried.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "mutations.toml"
COPIED = ("nmt_cli", "tests", "recipes", "docs", "pyproject.toml")
PYTEST = tuple("-m pytest -x -q -p no:xdist -p no:cacheprovider --timeout 240".split())
OUTCOMES = {0: "survived", 1: "killed"}  # by pytest's exit code


class Mutation(NamedTuple):
    """One change of a file, and the tests that must notice it."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> None:
        """Change the file below `root`.

        Raises:
            ValueError: the old text does not occur exactly once.
        """
        file = root / self.path
        content = file.read_text(encoding="utf-8")
        if content.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: occurs {content.count(self.old)} times in {self.path}: {self.old!r}"
            )
        file.write_text(content.replace(self.old, self.new), encoding="utf-8")


def mutations() -> Iterator[Mutation]:
    """Yield the mutations of the list."""
    for entry in tomllib.loads(LIST.read_text(encoding="utf-8"))["file"]:
        for name, (old, new) in entry["mutations"].items():
            yield Mutation(name, entry["path"], old, new, tuple(entry["tests"]))


def copied(tree: Path, copy: Path) -> Path:
    """Copy what the tests need, with the files' times, so that cached bytecode stays valid."""
    for name in COPIED:
        (shutil.copytree if (tree / name).is_dir() else shutil.copy2)(tree / name, copy / name)
    return copy


def outcome(tree: Path, tests: Sequence[str], mutation: Mutation | None = None) -> str:
    """Return what becomes of the tests, and so of the mutation, in a copy of the tree."""
    with tempfile.TemporaryDirectory(dir=tree) as folder:
        copy = copied(tree, Path(folder))
        if mutation is not None:
            mutation.apply(copy)
        environment = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1", "TMPDIR": folder}
        command = [sys.executable, *PYTEST, *tests]
        ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    if ended.returncode not in OUTCOMES or (mutation is None and ended.returncode):
        sys.stderr.write(ended.stdout + ended.stderr)
        return "failed"
    return OUTCOMES[ended.returncode]


def attempt(tree: Path, mutation: Mutation) -> bool:
    """Print what becomes of the mutation, and return whether it is killed."""
    began = time.monotonic()
    result = outcome(tree, mutation.tests, mutation)
    print(
        f"{result:9} {time.monotonic() - began:5.0f} s  {mutation.name}  {mutation.path}",
        flush=True,
    )
    return result == "killed"


def main(names: Sequence[str]) -> int:
    """Try the mutations called `names`, or all, and return the exit code."""
    chosen = [mutation for mutation in mutations() if not names or mutation.name in names]
    if unknown := set(names) - {mutation.name for mutation in chosen}:
        sys.exit(f"no such mutation: {', '.join(sorted(unknown))}")
    with (
        tempfile.TemporaryDirectory(prefix="nmt-mutants-") as folder,
        ThreadPoolExecutor(int(os.environ.get("WORKERS", "2"))) as pool,
    ):
        tree = copied(ROOT, Path(folder))  # once: files that are edited meanwhile do not matter
        passing = pool.map(partial(outcome, tree), sorted({mutation.tests for mutation in chosen}))
        if "failed" in passing:
            sys.exit("tests fail without a mutation")
        killed = sum(pool.map(partial(attempt, tree), chosen))
    print(f"{killed} of {len(chosen)} mutations killed")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
