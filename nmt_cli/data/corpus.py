"""The binary corpus: ids in flat files, memory-mapped, so that its size does not matter.

A split such as `train` consists of `train.source.ids` (all ids, one sentence after the other, without BOS and EOS,
little-endian uint16 or uint32), `train.source.offsets` (int64: sentence i is ids[offsets[i]:offsets[i + 1]]), and the
same for `target`. `manifest.json` holds the size and SHA-256 of each file.
"""

from __future__ import annotations

import copy
import hashlib
import operator
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from nmt_cli.errors import DataError
from nmt_cli.files.text import check_regular, fingerprint, read_object
from nmt_cli.interfaces import UNK

MANIFEST = "manifest.json"
SCHEMA = 1
SIDES = ("source", "target")
SPLITS = ("train", "valid", "test")
RAW_SPLITS = ("valid", "test")
"""The splits whose raw lines are kept in `valid.source.txt` and so on, for validation scores."""

LARGEST_WEIGHT = 1000  # how often at most an epoch has the sentences of a part of the training text

_OFFSET = np.dtype("<i8")
_DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
_AGAIN = "run nmt prepare again"

Ids = npt.NDArray[Any]


def ids_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """Return the narrowest type for the ids of a vocabulary of that size."""
    return _DTYPES["uint16" if vocabulary_size <= 1 << 16 else "uint32"]


def _files(split: str) -> tuple[str, ...]:
    """Return the endings of the files of each side."""
    return ("ids", "offsets", "txt") if split in RAW_SPLITS else ("ids", "offsets")


class Lengths:
    """The lengths of all sentences of one side, EOS included, read from the mapped offsets when they are asked for."""

    def __init__(self, offsets: npt.NDArray[np.int64]) -> None:
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, which: Any) -> npt.NDArray[np.int64]:
        """Return the lengths of the sentences `which`, as if this were an array; `[:]` returns all."""
        lengths: npt.NDArray[np.int64] = self._offsets[1:][which] - self._offsets[:-1][which] + 1
        return lengths


class Corpus:
    """One split of prepared data."""

    def __init__(self, data: Path, split: str, description: Mapping[str, Any]) -> None:
        self.split, self._data, self._description = split, data, description
        self._sentences: int = self._recorded(int, "sentences")
        sides = [self._mapped_side(side) for side in SIDES]
        self._ids = [ids for ids, _ in sides]
        self._offsets = [offsets for _, offsets in sides]
        self.source_lengths, self.target_lengths = map(Lengths, self._offsets)
        sums = [self._recorded(str, side, "files", name, "sha256") for side in SIDES for name in ("ids", "offsets")]
        self.weights = self._read_weights()
        """First sentence, end and weight of each part, in order: in an epoch its sentences occur `weight` times."""
        upsampled = [f"{part}" for part in self.weights] if any(weight > 1 for *_, weight in self.weights) else []
        self.fingerprint = hashlib.sha256("\n".join(sums + upsampled).encode()).hexdigest()
        """SHA-256 over the fingerprints of the split's files in the manifest, and over its weights."""

    @classmethod
    def open(cls, data: Path, split: str) -> Corpus:
        """Open the split `train`, `valid` or `test` of a directory that `nmt prepare` wrote.

        Raises:
            DataError: this is not prepared data, the split is missing, or a file is missing or has the wrong size.
        """
        splits = read_manifest(data).get("splits")
        if not isinstance(splits, dict) or not isinstance(splits.get(split), dict):
            hint = f"; run nmt prepare with --{split} PREFIX" if split in SPLITS else ""
            raise DataError(f"{data}: has no {split} text{hint}")
        return cls(data, split, splits[split])

    def __len__(self) -> int:
        return self._sentences

    def source(self, i: int) -> Ids:
        """Return the source ids of sentence `i`, without BOS and EOS."""
        return self._sentence(0, i)

    def target(self, i: int) -> Ids:
        return self._sentence(1, i)

    def sources(self, indices: npt.NDArray[np.int64]) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Return the source ids of the sentences `indices`, one after the other, and the number of each one's ids."""
        return self._sentences_of(0, indices)

    def targets(self, indices: npt.NDArray[np.int64]) -> tuple[Ids, npt.NDArray[np.int64]]:
        return self._sentences_of(1, indices)

    def raw_source(self) -> list[str]:
        """Return the raw source lines (of validation and test text only)."""
        return self._raw("source")

    def raw_target(self) -> list[str]:
        return self._raw("target")

    def check(self, source_vocabulary_size: int, target_vocabulary_size: int) -> None:
        """Check that every id is in its vocabulary.

        Raises:
            DataError: an id is not; the message names the sentence.
        """
        sizes = (source_vocabulary_size, target_vocabulary_size)
        for side, ids, offsets, size in zip(SIDES, self._ids, self._offsets, sizes, strict=True):
            if ids.max(initial=0) >= size:
                position = int(np.argmax(ids >= size))
                sentence = int(np.searchsorted(offsets, position, side="right"))
                raise DataError(
                    f"{self._path(side, 'ids')}: sentence {sentence} has the id {ids[position]}, but the "
                    f"vocabulary has {size} entries"
                )

    def verify(self) -> None:
        """Check the SHA-256 of every file of the split, in a thread for each.

        Raises:
            DataError: a file has changed since it was written.
        """
        recorded = {
            self._path(side, name): self._recorded(str, side, "files", name, "sha256")
            for side in SIDES
            for name in _files(self.split)
        }
        with ThreadPoolExecutor() as threads:
            for path, found in zip(recorded, threads.map(fingerprint, recorded), strict=True):
                if found != recorded[path]:
                    raise DataError(f"{path}: has changed since it was written; {_AGAIN}")

    def _sentence(self, side: int, i: int) -> Ids:
        if not 0 <= i < self._sentences:
            raise IndexError(f"sentence {i} of {self._sentences}")
        offsets = self._offsets[side]
        return self._ids[side][offsets[i] : offsets[i + 1]]

    def _sentences_of(self, side: int, indices: npt.NDArray[np.int64]) -> tuple[Ids, npt.NDArray[np.int64]]:
        starts = self._offsets[side][indices]
        lengths = self._offsets[side][indices + 1] - starts
        shifts = np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        return self._ids[side][shifts + np.arange(len(shifts))], lengths

    def _path(self, side: str, name: str) -> Path:
        return self._data / f"{self.split}.{side}.{name}"

    def _recorded(self, kind: type[Any], *keys: str) -> Any:
        """Return an entry of the split in the manifest."""
        found: Any = self._description
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if type(found) is not kind or (isinstance(found, int) and found < 0):
            raise DataError(f"{self._data / MANIFEST}: damaged: {'.'.join([self.split, *keys])} is {found!r}; {_AGAIN}")
        return found

    def _read_weights(self) -> list[tuple[int, int, int]]:
        parts = self._description.get("parts", [{"sentences": self._sentences, "weight": 1}])
        weights: list[tuple[int, int, int]] = []
        try:
            first = 0
            for part in parts:
                end = first + operator.index(part["sentences"])
                weights.append((first, end, operator.index(part["weight"])))
                first = end
            if first != self._sentences or any(
                end < first or not 1 <= weight <= LARGEST_WEIGHT for first, end, weight in weights
            ):
                raise ValueError
        except (TypeError, KeyError, ValueError) as error:
            raise DataError(f"{self._data / MANIFEST}: damaged: {self.split}.parts is {parts!r}; {_AGAIN}") from error
        return weights

    def _mapped_side(self, side: str) -> tuple[Ids, Ids]:
        """Return the ids and the offsets of one side."""
        dtype = self._recorded(str, side, "dtype")
        if dtype not in _DTYPES:
            raise DataError(f"{self._data / MANIFEST}: damaged: unknown type of ids: {dtype!r}; {_AGAIN}")
        ids = _mapped(self._path(side, "ids"), _DTYPES[dtype], self._recorded(int, side, "tokens"))
        path = self._path(side, "offsets")
        offsets = _mapped(path, _OFFSET, self._sentences + 1)
        if offsets[0] != 0 or offsets[-1] != len(ids) or np.any(offsets[1:] < offsets[:-1]):
            raise DataError(f"{path}: damaged: the offsets do not run from 0 to the end of the ids; {_AGAIN}")
        return ids, offsets

    def _raw(self, side: str) -> list[str]:
        path = self._path(side, "txt")
        check_regular(path)
        try:
            # Not `read_lines`: a byte-order mark or a carriage return in this file belongs to the line.
            lines = path.read_bytes().decode("utf-8").split("\n")
        except OSError as error:
            raise DataError(f"{path}: cannot read this file: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: damaged: {error}; {_AGAIN}") from error
        if len(lines) != self._sentences + 1 or lines[-1]:
            raise DataError(f"{path}: damaged: {len(lines) - 1} lines, expected {self._sentences}; {_AGAIN}")
        return lines[:-1]


class CorpusWriter:
    """Writes one split, batch by batch.

    Args:
        vocabulary_sizes: of source and target; they determine the type of the ids.
        written: what `flush` returned, to go on from there; not for splits with raw lines.

    Raises:
        DataError: the files are shorter than `written` says.
    """

    def __init__(
        self, directory: Path, split: str, vocabulary_sizes: Sequence[int], written: Mapping[str, Any] | None = None
    ) -> None:
        self._paths = {side: {name: directory / f"{split}.{side}.{name}" for name in _files(split)} for side in SIDES}
        self._dtypes = {side: ids_dtype(size) for side, size in zip(SIDES, vocabulary_sizes, strict=True)}
        nothing = {side: {"sentences": 0, "tokens": 0, "unknown": 0} for side in SIDES}
        self._written: dict[str, dict[str, int]] = {**nothing, **(written or {})}
        self._stack = ExitStack()
        self._files = {
            side: {
                name: self._stack.enter_context(path.open("r+b" if written else "wb")) for name, path in paths.items()
            }
            for side, paths in self._paths.items()
        }
        for side, files in self._files.items():
            if written:
                _cut(files["ids"], self._written[side]["tokens"] * self._dtypes[side].itemsize)
                _cut(files["offsets"], (self._written[side]["sentences"] + 1) * _OFFSET.itemsize)
            else:
                files["offsets"].write(np.zeros(1, _OFFSET).tobytes())

    def add(self, side: str, ids: Ids, lengths: Ids, lines: Sequence[str] = ()) -> None:
        """Append sentences to one side.

        Args:
            ids: the ids of all the sentences, one after the other.
            lengths: the number of ids in each sentence.
            lines: the raw lines, written for validation and test text.
        """
        files, written = self._files[side], self._written[side]
        files["ids"].write(ids.astype(self._dtypes[side]).tobytes())
        files["offsets"].write((written["tokens"] + np.cumsum(lengths, dtype=_OFFSET)).tobytes())
        if "txt" in files:
            files["txt"].write("".join(f"{line}\n" for line in lines).encode())
        written["sentences"] += len(lengths)
        written["tokens"] += len(ids)
        written["unknown"] += int(np.count_nonzero(ids == UNK))

    def flush(self) -> dict[str, dict[str, int]]:
        """Write everything to the files; return the counts of each side, with which another writer can go on."""
        for files in self._files.values():
            for file in files.values():
                file.flush()
        return copy.deepcopy(self._written)

    def close(self) -> dict[str, Any]:
        """Close the files; return the split's entry in the manifest."""
        self._stack.close()
        entry: dict[str, Any] = {"sentences": self._written["source"]["sentences"]}
        for side, paths in self._paths.items():
            files = {name: {"bytes": path.stat().st_size, "sha256": fingerprint(path)} for name, path in paths.items()}
            counts = {name: self._written[side][name] for name in ("tokens", "unknown")}
            entry[side] = {**counts, "dtype": self._dtypes[side].name, "files": files}
        return entry

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def read_manifest(data: Path) -> dict[str, Any]:
    """Return the manifest of prepared data.

    Raises:
        DataError: this is not prepared data, or its manifest is damaged or has an unknown schema.
    """
    path = data / MANIFEST
    if not path.exists():
        what = f"not prepared data: it has no {MANIFEST}" if data.exists() else "no such directory"
        raise DataError(f"{data}: {what}; create it with nmt prepare --out {'DATA' if data.exists() else data}")
    content = read_object(path, DataError, "Run nmt prepare again.")
    if (schema := content.get("schema")) != SCHEMA:
        raise DataError(f"{path}: its schema is {schema!r}, this version reads {SCHEMA}; {_AGAIN}")
    return content


def _cut(file: BinaryIO, size: int) -> None:
    """Set the size of a file, and go to its end."""
    if file.seek(0, os.SEEK_END) < size:
        raise DataError(f"{file.name}: shorter than recorded; {_AGAIN}")
    file.truncate(size)
    file.seek(size)


def _mapped(path: Path, dtype: np.dtype[Any], length: int) -> Ids:
    try:
        size = path.stat().st_size
        if size != length * dtype.itemsize:
            raise DataError(f"{path}: damaged: {size} bytes, expected {length * dtype.itemsize}; {_AGAIN}")
        # An empty file cannot be mapped.
        return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if length else np.zeros(0, dtype)
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror}") from error
