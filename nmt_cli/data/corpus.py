"""The binary corpus: ids in flat files, memory-mapped, so that its size does not matter.

A split such as `train` consists of `train.source.ids` (all ids, one sentence after the other, without BOS and EOS,
little-endian uint16 or uint32), `train.source.offsets` (int64: sentence i is ids[offsets[i]:offsets[i + 1]]), and the
same for `target`. `manifest.json` holds the size and SHA-256 of each file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt_cli.errors import DataError
from nmt_cli.files.text import fingerprint

MANIFEST = "manifest.json"
SCHEMA = 1
SIDES = ("source", "target")
SPLITS = ("train", "valid", "test")
RAW_SPLITS = ("valid", "test")
"""The splits whose raw lines are kept in `valid.source.txt` and so on, for validation scores."""

_OFFSET = np.dtype("<i8")
_DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
_BLOCK = 1 << 22  # ids
_AGAIN = "run nmt prepare again"

Ids = npt.NDArray[Any]


def ids_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """Return the narrowest type for the ids of a vocabulary of that size."""
    return _DTYPES["uint16" if vocabulary_size <= 1 << 16 else "uint32"]


class Corpus:
    """One split of prepared data. Indexing reads single sentences."""

    def __init__(self, data: Path, split: str, description: Mapping[str, Any]) -> None:
        self.split = split
        self._data = data
        self._description = description
        self._sentences = self._count(description.get("sentences"))
        self._ids = {side: self._map_ids(side) for side in SIDES}
        self._offsets = {side: self._map_offsets(side) for side in SIDES}

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
        return self._sentence("source", i)

    def target(self, i: int) -> Ids:
        return self._sentence("target", i)

    @property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        """The number of ids in each source sentence, without EOS."""
        return np.diff(self._offsets["source"]).astype(np.int32)

    @property
    def target_lengths(self) -> npt.NDArray[np.int32]:
        return np.diff(self._offsets["target"]).astype(np.int32)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the fingerprints of the split's files in the manifest."""
        sums = [self._recorded(side, name) for side in SIDES for name in ("ids", "offsets")]
        return hashlib.sha256("\n".join(sums).encode()).hexdigest()

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
        for side, size in zip(SIDES, (source_vocabulary_size, target_vocabulary_size), strict=True):
            for start, block in _blocks(self._ids[side]):
                if len(block) and int(block.max()) >= size:
                    position = start + int(np.argmax(block >= size))
                    sentence = int(np.searchsorted(self._offsets[side], position, side="right"))
                    raise DataError(
                        f"{self._path(side, 'ids')}: sentence {sentence} has the id {self._ids[side][position]}, but "
                        f"the vocabulary has {size} entries"
                    )

    def verify(self) -> None:
        """Check the SHA-256 of every file of the split.

        Raises:
            DataError: a file has changed since it was written.
        """
        for side in SIDES:
            for name in ("ids", "offsets", *(("txt",) if self.split in RAW_SPLITS else ())):
                path = self._path(side, name)
                if fingerprint(path) != self._recorded(side, name):
                    raise DataError(f"{path}: has changed since it was written; {_AGAIN}")

    def _sentence(self, side: str, i: int) -> Ids:
        if not 0 <= i < self._sentences:
            raise IndexError(f"sentence {i} of {self._sentences}")
        offsets = self._offsets[side]
        return self._ids[side][offsets[i] : offsets[i + 1]]

    def _path(self, side: str, name: str) -> Path:
        return self._data / f"{self.split}.{side}.{name}"

    def _recorded(self, side: str, name: str) -> str:
        """Return the SHA-256 of a file in the manifest."""
        try:
            recorded = self._description[side]["files"][name]["sha256"]
        except (KeyError, TypeError):
            recorded = None
        if not isinstance(recorded, str):
            raise self._damaged(f"no SHA-256 of {self._path(side, name).name}")
        return recorded

    def _count(self, value: Any) -> int:
        if type(value) is not int or value < 0:
            raise self._damaged(f"{value!r} is not a count")
        return value

    def _damaged(self, problem: str) -> DataError:
        return DataError(f"{self._data / MANIFEST}: damaged: {problem}; {_AGAIN}")

    def _map_ids(self, side: str) -> Ids:
        self._recorded(side, "ids")
        dtype = _DTYPES.get(str(self._description[side].get("dtype")))
        if dtype is None:
            raise self._damaged(f"the ids of {self.split}.{side} must be uint16 or uint32")
        return _mapped(self._path(side, "ids"), dtype, self._count(self._description[side].get("tokens")))

    def _map_offsets(self, side: str) -> Ids:
        path = self._path(side, "offsets")
        offsets = _mapped(path, _OFFSET, self._sentences + 1)
        complete = offsets[0] == 0 and offsets[-1] == len(self._ids[side])
        if not complete or any(np.any(block[1:] < block[:-1]) for _, block in _blocks(offsets, overlap=1)):
            raise DataError(f"{path}: damaged: the offsets do not run from 0 to the end of the ids; {_AGAIN}")
        return offsets

    def _raw(self, side: str) -> list[str]:
        path = self._path(side, "txt")
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
    """

    def __init__(self, directory: Path, split: str, vocabulary_sizes: Sequence[int]) -> None:
        names = ("ids", "offsets", *(("txt",) if split in RAW_SPLITS else ()))
        self._paths = {side: {name: directory / f"{split}.{side}.{name}" for name in names} for side in SIDES}
        self._dtypes = {side: ids_dtype(size) for side, size in zip(SIDES, vocabulary_sizes, strict=True)}
        self._tokens = dict.fromkeys(SIDES, 0)
        self._sentences = dict.fromkeys(SIDES, 0)
        self._stack = ExitStack()
        self._files = {
            side: {name: self._stack.enter_context(path.open("wb")) for name, path in paths.items()}
            for side, paths in self._paths.items()
        }
        for files in self._files.values():
            files["offsets"].write(np.zeros(1, _OFFSET).tobytes())

    def add(self, side: str, ids: Ids, lengths: Ids, lines: Sequence[str] = ()) -> None:
        """Append sentences to one side.

        Args:
            ids: the ids of all the sentences, one after the other.
            lengths: the number of ids in each sentence.
            lines: the raw lines, written for validation and test text.
        """
        files = self._files[side]
        files["ids"].write(ids.astype(self._dtypes[side]).tobytes())
        files["offsets"].write((self._tokens[side] + np.cumsum(lengths, dtype=_OFFSET)).tobytes())
        if "txt" in files:
            files["txt"].write("".join(f"{line}\n" for line in lines).encode())
        self._tokens[side] += len(ids)
        self._sentences[side] += len(lengths)

    def close(self) -> dict[str, Any]:
        """Close the files; return the split's entry in the manifest."""
        self._stack.close()
        source, target = self._sentences.values()
        if source != target:
            raise DataError(f"{source} source sentences but {target} target sentences")
        entry: dict[str, Any] = {"sentences": source}
        for side, paths in self._paths.items():
            files = {name: {"bytes": path.stat().st_size, "sha256": fingerprint(path)} for name, path in paths.items()}
            entry[side] = {"tokens": self._tokens[side], "dtype": self._dtypes[side].name, "files": files}
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
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: not a regular file")
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(
            f"{data}: not prepared data: it has no {MANIFEST}; create it with nmt prepare --out {data}"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: damaged: {error}; {_AGAIN}") from error
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise DataError(f"{path}: its schema is {schema!r}, this version reads {SCHEMA}; {_AGAIN}")
    return dict(content)


def _mapped(path: Path, dtype: np.dtype[Any], length: int) -> Ids:
    try:
        size = path.stat().st_size
        if size != length * dtype.itemsize:
            raise DataError(f"{path}: damaged: {size} bytes, expected {length * dtype.itemsize}; {_AGAIN}")
        # An empty file cannot be mapped.
        return np.memmap(path, dtype=dtype, mode="r") if length else np.zeros(0, dtype)
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror}") from error


def _blocks(values: Ids, overlap: int = 0) -> Iterator[tuple[int, Ids]]:
    """Yield consecutive views of `values` with their starts; each includes `overlap` values of the next."""
    for start in range(0, len(values), _BLOCK):
        yield start, values[start : start + _BLOCK + overlap]
