"""The binary corpus: ids in flat files, mapped into memory, so that its size does not matter.

A split `train` of the folder DATA is `train.source.ids` (all ids, one sentence after the other, without BOS and EOS,
little-endian uint16 or uint32), `train.source.offsets` (int64: sentence i is ids[offsets[i]:offsets[i + 1]]), and the
same for `target`. `manifest.json` says how long each file must be and what its SHA-256 is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from nmt_cli.errors import DataError
from nmt_cli.files.text import fingerprint

MANIFEST = "manifest.json"
SCHEMA = 1
SIDES = ("source", "target")
SPLITS = ("train", "valid", "test")
RAW_SPLITS = ("valid", "test")
"""The splits whose raw lines are kept beside the ids, for scores in training."""

_OFFSET = np.dtype("<i8")
_DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
_BLOCK = 1 << 22  # ids

Ids = npt.NDArray[Any]


def ids_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """The narrowest type that holds every id of a vocabulary of that size."""
    return _DTYPES["uint16" if vocabulary_size <= 1 << 16 else "uint32"]


class Corpus:
    """One split of a prepared data folder. Indexing reads only what is asked for."""

    def __init__(self, folder: Path, split: str, description: Mapping[str, Any]) -> None:
        self.split = split
        self._folder = folder
        self._description = description
        self._sentences = _natural(description.get("sentences"), folder)
        self._ids = {side: self._map_ids(side) for side in SIDES}
        self._offsets = {side: self._map_offsets(side) for side in SIDES}

    @classmethod
    def open(cls, data: Path, split: str) -> Corpus:
        """The split `train`, `valid` or `test` of the folder that `nmt prepare` wrote.

        Raises:
            DataError: the folder is none, lacks the split, or a file of it is missing or has the wrong size.
        """
        manifest = read_manifest(data)
        splits = manifest.get("splits")
        if not isinstance(splits, dict) or not isinstance(splits.get(split), dict):
            hint = f"; run nmt prepare with --{split} PREFIX" if split in SPLITS else ""
            raise DataError(f"{data}: it holds no {split} text{hint}")
        return cls(data, split, splits[split])

    def __len__(self) -> int:
        return self._sentences

    def source(self, i: int) -> Ids:
        """The source ids of sentence `i`, without BOS and EOS."""
        return self._sentence("source", i)

    def target(self, i: int) -> Ids:
        return self._sentence("target", i)

    @property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        """Ids in each source sentence, without EOS."""
        return np.diff(self._offsets["source"]).astype(np.int32)

    @property
    def target_lengths(self) -> npt.NDArray[np.int32]:
        return np.diff(self._offsets["target"]).astype(np.int32)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the fingerprints of the split's files, as the manifest records them."""
        sums = [str(self._file_description(side, name)["sha256"]) for side in SIDES for name in ("ids", "offsets")]
        return hashlib.sha256("\n".join(sums).encode()).hexdigest()

    def raw_source(self) -> list[str]:
        """The raw source lines (validation and test text only)."""
        return self._raw("source")

    def raw_target(self) -> list[str]:
        return self._raw("target")

    def check(self, source_vocabulary_size: int, target_vocabulary_size: int) -> None:
        """Looks at every id once.

        Raises:
            DataError: an id is not in its vocabulary; the message names the sentence.
        """
        for side, size in zip(SIDES, (source_vocabulary_size, target_vocabulary_size), strict=True):
            for start, block in _blocks(self._ids[side]):
                if len(block) and int(block.max()) >= size:
                    position = start + int(np.argmax(block >= size))
                    sentence = int(np.searchsorted(self._offsets[side], position, side="right"))
                    raise DataError(
                        f"{self._path(side, 'ids')}: sentence {sentence} has the id {self._ids[side][position]}, but "
                        f"the vocabulary has {size} entries; the corpus and the vocabulary do not belong together"
                    )

    def verify(self) -> None:
        """Reads every file of the split and compares its SHA-256 with the manifest.

        Raises:
            DataError: a file has changed since it was written.
        """
        for side in SIDES:
            for name in ("ids", "offsets", *(("txt",) if self.split in RAW_SPLITS else ())):
                path = self._path(side, name)
                if fingerprint(path) != self._file_description(side, name)["sha256"]:
                    raise DataError(f"{path}: its content has changed since it was written; run nmt prepare again")

    def _sentence(self, side: str, i: int) -> Ids:
        if not 0 <= i < self._sentences:
            raise IndexError(f"sentence {i} of {self._sentences}")
        offsets = self._offsets[side]
        return self._ids[side][offsets[i] : offsets[i + 1]]

    def _path(self, side: str, name: str) -> Path:
        return self._folder / f"{self.split}.{side}.{name}"

    def _file_description(self, side: str, name: str) -> Mapping[str, Any]:
        try:
            description = self._description[side]["files"][name]
            if isinstance(description["sha256"], str):
                return description  # type: ignore[no-any-return]
        except (KeyError, TypeError):
            pass
        raise DataError(
            f"{self._folder / MANIFEST}: it does not describe {self._path(side, name).name}; run nmt prepare again"
        )

    def _map_ids(self, side: str) -> Ids:
        self._file_description(side, "ids")
        dtype = _DTYPES.get(str(self._description[side].get("dtype")))
        if dtype is None:
            raise DataError(f"{self._folder / MANIFEST}: the ids of {self.split}.{side} must be uint16 or uint32")
        return _mapped(self._path(side, "ids"), dtype, _natural(self._description[side].get("tokens"), self._folder))

    def _map_offsets(self, side: str) -> Ids:
        path = self._path(side, "offsets")
        offsets = _mapped(path, _OFFSET, self._sentences + 1)
        ordered = offsets[0] == 0 and offsets[-1] == len(self._ids[side])
        if not ordered or any(np.any(block[1:] < block[:-1]) for _, block in _blocks(offsets, overlap=1)):
            raise DataError(
                f"{path}: damaged: its offsets do not run from 0 to the end of the ids; run nmt prepare again"
            )
        return offsets

    def _raw(self, side: str) -> list[str]:
        path = self._path(side, "txt")
        try:
            # Not as user's text: a byte-order mark or a carriage return that is still there belongs to the line.
            lines = path.read_bytes().decode("utf-8").split("\n")
        except OSError as error:
            raise DataError(f"{path}: cannot read this file: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: damaged: {error}; run nmt prepare again") from error
        if len(lines) != self._sentences + 1 or lines[-1]:
            raise DataError(
                f"{path}: {len(lines) - 1} lines where there must be {self._sentences}; run nmt prepare again"
            )
        return lines[:-1]


class CorpusWriter:
    """Writes one split, batch by batch, in the order in which sentences come.

    Args:
        vocabulary_sizes: of source and target; they choose the width of the ids.
    """

    def __init__(self, folder: Path, split: str, vocabulary_sizes: Sequence[int]) -> None:
        self._sides = [
            _SideWriter(folder, split, side, ids_dtype(size), split in RAW_SPLITS)
            for side, size in zip(SIDES, vocabulary_sizes, strict=True)
        ]

    def add(self, side: str, ids: Ids, lengths: Ids, lines: Sequence[str] = ()) -> None:
        """Appends sentences to one side.

        Args:
            ids: all ids of the sentences, one sentence after the other.
            lengths: how many ids each sentence has.
            lines: the raw lines, for the splits that keep them.
        """
        self._sides[SIDES.index(side)].add(ids, lengths, lines)

    def close(self) -> dict[str, Any]:
        """Brings everything to the disk; returns the split's entry for the manifest."""
        source, target = (side.close() for side in self._sides)
        if source["sentences"] != target["sentences"]:
            raise DataError(f"{source['sentences']} source sentences but {target['sentences']} target sentences")
        sentences = source.pop("sentences")
        target.pop("sentences")
        return {"sentences": sentences, "source": source, "target": target}

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for side in self._sides:
            side.release()


class _SideWriter:
    """The files of one side of one split."""

    def __init__(self, folder: Path, split: str, side: str, dtype: np.dtype[Any], raw: bool) -> None:
        self._dtype = dtype
        self._end = 0
        self._sentences = 0
        self._stack = ExitStack()
        names = ("ids", "offsets", *(("txt",) if raw else ()))
        self._files = {
            name: self._stack.enter_context(_HashedFile(folder / f"{split}.{side}.{name}")) for name in names
        }
        self._files["offsets"].write(np.zeros(1, _OFFSET).tobytes())

    def add(self, ids: Ids, lengths: Ids, lines: Sequence[str]) -> None:
        ends = self._end + np.cumsum(lengths, dtype=_OFFSET)
        self._files["ids"].write(ids.astype(self._dtype).tobytes())
        self._files["offsets"].write(ends.tobytes())
        if "txt" in self._files:
            self._files["txt"].write("".join(f"{line}\n" for line in lines).encode())
        self._end += len(ids)
        self._sentences += len(lengths)

    def close(self) -> dict[str, Any]:
        files = {name: file.finish() for name, file in self._files.items()}
        self.release()
        return {"sentences": self._sentences, "tokens": self._end, "dtype": self._dtype.name, "files": files}

    def release(self) -> None:
        self._stack.close()


class _HashedFile:
    """A file that knows the SHA-256 of what was written to it."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("wb")
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, content: bytes) -> None:
        self._file.write(content)
        self._hash.update(content)
        self._size += len(content)

    def finish(self) -> dict[str, Any]:
        """Flushes to the disk; returns size and fingerprint."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return {"bytes": self._size, "sha256": self._hash.hexdigest()}

    def __enter__(self) -> _HashedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_manifest(data: Path) -> dict[str, Any]:
    """The manifest of a prepared data folder.

    Raises:
        DataError: the folder is none, or its manifest is damaged or of another version.
    """
    path = data / MANIFEST
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: no regular file")
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(
            f"{data}: no prepared data: there is no {MANIFEST} in it; make it with nmt prepare --out {data}"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot read it: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: damaged: {error}; run nmt prepare again") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        schema = content.get("schema") if isinstance(content, dict) else None
        raise DataError(f"{path}: its schema is {schema!r}, this version reads {SCHEMA}; run nmt prepare again")
    return content


def _mapped(path: Path, dtype: np.dtype[Any], length: int) -> Ids:
    try:
        size = path.stat().st_size
        if size != length * dtype.itemsize:
            raise DataError(
                f"{path}: damaged: {size} bytes where there must be {length * dtype.itemsize}; run nmt prepare again"
            )
        # An empty file cannot be mapped.
        return np.memmap(path, dtype=dtype, mode="r") if length else np.zeros(0, dtype)
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror}") from error


def _blocks(values: Ids, overlap: int = 0) -> Iterator[tuple[int, Ids]]:
    """Views of `values`, one after the other, each with where it starts; `overlap` values are seen twice."""
    for start in range(0, len(values), _BLOCK):
        yield start, values[start : start + _BLOCK + overlap]


def _natural(value: Any, folder: Path) -> int:
    if type(value) is not int or value < 0:
        raise DataError(f"{folder / MANIFEST}: damaged: {value!r} is no count; run nmt prepare again")
    return value
