"""The binary corpus: ids in flat files, memory-mapped, so that its size does not matter.

A split such as `train` consists of `train.source.ids` (all ids, one sentence after the other,
without BOS and EOS, little-endian uint16 or uint32), `train.source.offsets` (int64: sentence i is
ids[offsets[i]:offsets[i + 1]]), and the same for `target`. `manifest.json` holds the size and
SHA-256 of each file.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from io import BufferedWriter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nmt_cli.errors import DataError, command_line, shown
from nmt_cli.files.text import LARGEST_WEIGHT, check_regular, fingerprint, read_object
from nmt_cli.interfaces import UNK

MANIFEST = "manifest.json"
SCHEMA = 1
SIDES = ("source", "target")
SPLITS = ("train", "valid", "test")
RAW_SPLITS = ("valid", "test")  # whose raw lines are in `valid.source.txt` and so on

_OFFSET = np.dtype("<i8")
_DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
_AGAIN = "run nmt prepare again"

Ids = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


class Part(NamedTuple):
    """A part of a corpus, whose sentences occur `weight` times in an epoch."""

    first: int  # its first sentence
    end: int
    weight: float
    data: Path = Path()  # the prepared data that it is in
    prefix: str = ""  # of its text, or its files with tabs between. All text: ""


class Pairs(Protocol):
    """Sentence pairs, such as a corpus."""

    source_lengths: Any  # [pairs]: tokens of each, EOS included
    target_lengths: Any  # [pairs]

    def ids(self, side: str, indices: Indices) -> tuple[Ids, Indices]:
        """Return these sentences' ids in one array, without BOS and EOS, and how many each has."""


def _files(split: str) -> tuple[str, ...]:
    """Return the endings of the files of each side."""
    if split in RAW_SPLITS:
        return ("ids", "offsets", "txt")
    return ("ids", "offsets")


class Lengths:
    """The lengths of one side's sentences, EOS included, computed from the offsets when indexed."""

    def __init__(self, offsets: npt.NDArray[np.int64]) -> None:
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, which: Any) -> npt.NDArray[np.int64]:
        lengths: npt.NDArray[np.int64] = self._offsets[1:][which] - self._offsets[:-1][which] + 1
        return lengths


class Corpus:
    """One split of prepared data."""

    source_lengths: Lengths | Ids
    target_lengths: Lengths | Ids

    def __init__(self, data: Path, split: str, description: Mapping[str, Any]) -> None:
        self.split = split
        self._data = data
        self._sums: dict[Path, str] = {}  # SHA-256
        self._sides: dict[str, tuple[Ids, Ids]] = {}  # ids and offsets
        try:
            self._sentences = operator.index(description["sentences"])
            self.parts = _parts(description, data, self._sentences)
            for side in SIDES:
                about = description[side]
                for name in _files(split):
                    self._sums[self._path(side, name)] = str(about["files"][name]["sha256"])
                tokens = operator.index(about["tokens"])
                self._sides[side] = self._mapped_side(side, _DTYPES[about["dtype"]], tokens)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise DataError(
                f"{data / MANIFEST}: damaged: the entry {split}: {shown(error)}; {_AGAIN}"
            ) from error
        self.source_lengths = Lengths(self._sides["source"][1])
        self.target_lengths = Lengths(self._sides["target"][1])
        described = [checksum for path, checksum in self._sums.items() if path.suffix != ".txt"]
        if any(part.weight != 1 for part in self.parts):
            described += [str((part.first, part.end, part.weight)) for part in self.parts]
        self.fingerprint = _sha256(described)
        """SHA-256 over the SHA-256 of the split's files in the manifest, and over its weights."""

    @classmethod
    def open(cls, data: Path, split: str) -> Corpus:
        """Open the split `train`, `valid` or `test` of a directory that `nmt prepare` wrote.

        Raises:
            DataError: the split or a file is missing, or a file has the wrong size.
        """
        splits = read_manifest(data).get("splits")
        if not isinstance(splits, dict) or not isinstance(splits.get(split), dict):
            message = f"{data}: has no {split} text"
            if split in SPLITS:
                message += f"; run nmt prepare with --{split} PREFIX"
            raise DataError(message)
        return cls(data, split, splits[split])

    def __len__(self) -> int:
        return self._sentences

    def source(self, i: int) -> Ids:
        """Return the source ids of sentence `i`, without BOS and EOS."""
        return self.ids("source", [i])[0]

    def target(self, i: int) -> Ids:
        return self.ids("target", [i])[0]

    def ids(self, side: str, indices: Sequence[int] | Indices) -> tuple[Ids, Indices]:
        """Return these sentences' ids in one array, without BOS and EOS, and how many each has."""
        ids, offsets = self._sides[side]
        return gathered(ids, offsets, np.asarray(indices))

    def raw_lines(self, side: str) -> list[str]:
        """Return the lines before any change. Only validation and test text have them."""
        path = self._path(side, "txt")
        check_regular(path)
        # Not `read_lines`: a byte-order mark or a carriage return in this file belongs to the line.
        return path.read_bytes().decode("utf-8", "replace").split("\n")[:-1]

    def verify(self) -> None:
        """Raise DataError if a file of the split has changed since it was written."""
        with ThreadPoolExecutor() as threads:
            sums = threads.map(fingerprint, self._sums)
            for (path, recorded), checksum in zip(self._sums.items(), sums, strict=True):
                if checksum != recorded:
                    raise DataError(f"{path}: has changed since it was written; {_AGAIN}")

    def check_ids(self, vocabulary_sizes: Sequence[int]) -> None:
        """Raise DataError if an id is not in its side's vocabulary, given the sizes of both."""
        for side, size in zip(SIDES, vocabulary_sizes, strict=True):
            ids, _ = self._sides[side]
            largest = int(ids.max(initial=0))
            if largest >= size:
                raise DataError(
                    f"{self._path(side, 'ids')}: has the id {largest}, but the vocabulary has "
                    f"{size} entries; {_AGAIN}"
                )

    def _path(self, side: str, name: str) -> Path:
        return self._data / f"{self.split}.{side}.{name}"

    def _mapped_side(self, side: str, dtype: np.dtype[Any], tokens: int) -> tuple[Ids, Ids]:
        ids = _mapped(self._path(side, "ids"), dtype, tokens)
        path = self._path(side, "offsets")
        offsets = _mapped(path, _OFFSET, self._sentences + 1)
        if offsets[0] != 0 or offsets[-1] != len(ids) or np.any(offsets[1:] < offsets[:-1]):
            raise DataError(
                f"{path}: damaged: the offsets do not run from 0 to the end of the ids; {_AGAIN}"
            )
        return ids, offsets


class JoinedCorpus(Corpus):
    """The same split of several directories with one vocabulary, whose ids stay where they are."""

    def __init__(self, corpora: Sequence[Corpus], weights: Sequence[float]) -> None:
        self.split = corpora[0].split
        self._corpora = corpora
        self.source_lengths = np.concatenate(
            [corpus.source_lengths[:].astype(np.int32) for corpus in corpora]
        )
        self.target_lengths = np.concatenate(
            [corpus.target_lengths[:].astype(np.int32) for corpus in corpora]
        )
        # [corpora + 1]: the number of each corpus's first sentence, and of all sentences.
        self._starts = np.cumsum([0, *map(len, corpora)])
        self._sentences = int(self._starts[-1])
        self._sums = {}
        self.parts = []
        described = []
        for start, corpus, weight in zip(self._starts.tolist(), corpora, weights, strict=False):
            self._sums.update(corpus._sums)
            for part in corpus.parts:
                first, end = start + part.first, start + part.end
                self.parts.append(part._replace(first=first, end=end, weight=part.weight * weight))
            described.append(f"{corpus.fingerprint} {weight}")
        self.fingerprint = _sha256(described)

    def ids(self, side: str, indices: Sequence[int] | Indices) -> tuple[Ids, Indices]:
        indices = np.asarray(indices)
        corpora = np.searchsorted(self._starts, indices, side="right") - 1  # of each sentence
        lengths = getattr(self, f"{side}_lengths")[indices].astype(np.int64) - 1
        ids = np.empty(lengths.sum(), np.int64)
        for number in np.unique(corpora).tolist():
            belongs = corpora == number  # [sentences]
            in_corpus = indices[belongs] - self._starts[number]
            ids[np.repeat(belongs, lengths)], _ = self._corpora[number].ids(side, in_corpus)
        return ids, lengths


class PairsInMemory:
    """Sentence pairs, of each side all ids, and the number of ids of each sentence."""

    def __init__(self, sources: tuple[Ids, Indices], targets: tuple[Ids, Indices]) -> None:
        self._sides = {"source": sources, "target": targets}
        self.source_lengths = sources[1] + 1  # with EOS
        self.target_lengths = targets[1] + 1

    def ids(self, side: str, indices: Indices) -> tuple[Ids, Indices]:
        """See `Pairs`."""
        all_ids, lengths = self._sides[side]
        offsets = np.concatenate([[0], lengths.cumsum()])
        return gathered(all_ids, offsets, indices)


def selected(pairs: Pairs, indices: Indices) -> PairsInMemory:
    """Return a copy of some of the sentence pairs."""
    return PairsInMemory(pairs.ids("source", indices), pairs.ids("target", indices))


def concatenated(parts: Sequence[Pairs]) -> PairsInMemory:
    """Return all sentence pairs of `parts`, one part after the other."""
    sides = []
    for side in SIDES:
        every = [part.ids(side, np.arange(len(part.source_lengths))) for part in parts]
        ids, lengths = zip(*every, strict=True)
        sides.append((np.concatenate(ids), np.concatenate(lengths)))
    return PairsInMemory(*sides)


class CorpusWriter:
    """Writes one split, batch by batch, in types of ids that fit the vocabularies' sizes."""

    def __init__(self, directory: Path, split: str, vocabulary_sizes: Sequence[int]) -> None:
        self._stack = ExitStack()
        self._files: dict[str, dict[str, BufferedWriter]] = {}
        self._entry: dict[str, Any] = {"sentences": 0}  # of the split in the manifest
        for side, size in zip(SIDES, vocabulary_sizes, strict=True):
            dtype = "uint16" if size <= 1 << 16 else "uint32"  # the narrowest for the ids
            files = {}
            for name in _files(split):
                file = (directory / f"{split}.{side}.{name}").open("xb")
                files[name] = self._stack.enter_context(file)
            files["offsets"].write(np.zeros(1, _OFFSET).tobytes())
            self._files[side] = files
            self._entry[side] = {"tokens": 0, "unknown": 0, "dtype": dtype}

    def add(self, side: str, ids: Ids, lengths: Ids, lines: Sequence[str] = ()) -> None:
        """Append sentences to one side.

        Args:
            ids: of all the sentences, one after the other.
            lengths: the number of ids in each sentence.
            lines: the raw lines, for `RAW_SPLITS`.
        """
        files, about = self._files[side], self._entry[side]
        offsets = about["tokens"] + np.cumsum(lengths, dtype=_OFFSET)
        files["ids"].write(ids.astype(_DTYPES[about["dtype"]]).tobytes())
        files["offsets"].write(offsets.tobytes())
        if "txt" in files:
            files["txt"].write("".join(f"{line}\n" for line in lines).encode())
        about["tokens"] += len(ids)
        about["unknown"] += int(np.count_nonzero(ids == UNK))
        if side == "source":
            self._entry["sentences"] += len(lengths)

    def close(self) -> dict[str, Any]:
        """Close the files, and return the split's entry in the manifest."""
        self._stack.close()
        for side, files in self._files.items():
            entries = self._entry[side]["files"] = {}
            for name, file in files.items():
                path = Path(file.name)
                entries[name] = {"bytes": path.stat().st_size, "sha256": fingerprint(path)}
        return self._entry

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def read_manifest(data: Path) -> dict[str, Any]:
    """Return the manifest of prepared data. Raise DataError if it is missing or damaged."""
    path = data / MANIFEST
    if not data.exists():
        create = command_line("prepare", "--out", data)
        raise DataError(f"{data}: no such directory; create it with {create}")
    if not path.exists():
        create = command_line("prepare", "--out", "DATA")
        raise DataError(f"{data}: not prepared data: it has no {MANIFEST}; create it with {create}")
    content = read_object(path, DataError, "Run nmt prepare again.")
    schema = content.get("schema")
    if schema != SCHEMA:
        raise DataError(
            f"{path}: its schema is {shown(schema)}, this version reads {SCHEMA}; {_AGAIN}"
        )
    return content


def gathered(ids: Ids, offsets: Ids, indices: Indices) -> tuple[Ids, Indices]:
    """Return what `Pairs.ids` returns of one side: sentence i is ids[offsets[i]:offsets[i + 1]]."""
    starts = offsets[indices]  # [sentences]: in `ids`
    lengths = offsets[indices + 1] - starts
    new_starts = np.cumsum(lengths) - lengths  # in the result
    shifts = np.repeat(starts - new_starts, lengths)  # [ids of the result]
    return ids[shifts + np.arange(len(shifts))], lengths


def _parts(description: Mapping[str, Any], data: Path, sentences: int) -> list[Part]:
    """Return the parts of the text. Raise ValueError if they are wrong or not all of it."""
    parts = []
    end = 0
    for entry in description.get("parts", [{"sentences": sentences, "weight": 1}]):
        first = end
        end = first + operator.index(entry["sentences"])
        part = Part(first, end, entry["weight"], data, str(entry.get("prefix") or ""))
        parts.append(part)
        if end < first or not 0 < part.weight <= LARGEST_WEIGHT:
            raise ValueError(f"wrong part: {part!r}")
    if end != sentences:
        raise ValueError(f"wrong parts: {parts!r}")
    return parts


def _sha256(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _mapped(path: Path, dtype: np.dtype[Any], length: int) -> Ids:
    expected = length * dtype.itemsize
    try:
        size = path.stat().st_size
        if size != expected:
            raise DataError(f"{path}: damaged: {size} bytes, expected {expected}; {_AGAIN}")
        if length == 0:
            return np.zeros(0, dtype)  # an empty file cannot be mapped
        return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror}") from error
