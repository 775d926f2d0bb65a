"""The same hundred pairs as plain files and as a table, and a reader of prepared data."""

from __future__ import annotations

from pathlib import Path

import prepare_command

from nmt_cli import checkpoint
from nmt_cli.data.corpus import Corpus
from nmt_cli.task import Task

PAIRS = [(f"the dog sees {n} cats", f"der Hund sieht {n} Katzen") for n in range(100)]
LANGUAGES = ("--source-lang", "en", "--target-lang", "de")
TABLE = ("--train", "t.tsv", "--columns", "source=4,target=2")


def write(folder: Path) -> None:
    """Write a.en, a.de and t.tsv."""
    for name, side in (("a.en", 0), ("a.de", 1)):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    rows = (
        f'{number}\t{target}\tV;PST\t{source}\tnews"\n'
        for number, (source, target) in enumerate(PAIRS)
    )
    (folder / "t.tsv").write_text("".join(rows), encoding="utf-8")


def run(*words: str) -> int:
    return prepare_command.run(["prepare", "--workers", "1", "--vocab-size", "90", *words])


def read(folder: str) -> tuple[Task, list[list[str]], list[list[str]]]:
    """The task, and the pieces of the training text."""
    task, corpus = checkpoint.load_task(Path(folder) / "task"), Corpus.open(Path(folder), "train")
    numbers = range(len(corpus))
    return (
        task,
        [task.source_tokens(corpus.source(i)) for i in numbers],
        [task.target_tokens(corpus.target(i)) for i in numbers],
    )
