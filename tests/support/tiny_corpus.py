"""Corpora of a few sentences of ids, written to a folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from nmt_cli.data.corpus import CorpusWriter

Sentences = list[list[int]]

ids = st.lists(st.integers(0, 65535), max_size=6)
pairs = st.lists(st.tuples(ids, ids), min_size=1, max_size=12)


def write(
    folder: Path, sentences: list[tuple[list[int], list[int]]], split: str = "train", size: int = 65536, batch: int = 3
) -> Path:
    """A data folder with one split, written in batches of `batch` pairs; raw line i is "source i\x85"."""
    folder.mkdir(exist_ok=True)
    with CorpusWriter(folder, split, (size, size)) as writer:
        for start in range(0, len(sentences), batch):
            some = sentences[start : start + batch]
            for number, side in enumerate(("source", "target")):
                flat = np.array([i for pair in some for i in pair[number]], dtype=np.uint32)
                lengths = np.array([len(pair[number]) for pair in some])
                writer.add(side, flat, lengths, [f"{side} {start + i}\x85" for i in range(len(some))])
        description = writer.close()
    manifest = {"schema": 1, "splits": {split: description}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


PAIRS = [([5, 6, 7], [8]), ([], [9, 10]), ([11], [12, 13, 14, 15])]


def with_parts(folder: Path, parts: object) -> Path:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["splits"]["train"]["parts"] = parts
    path.write_text(json.dumps(manifest))
    return folder
