"""Several prepared corpora as one, which is never copied: its parts stay mapped into memory, each in its directory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt_cli.data.corpus import Corpus, Ids, Lengths

Indices = npt.NDArray[np.int64]


class JoinedLengths(Lengths):
    """The lengths of the sentences of all parts, by their indices in the joined corpus."""

    def __init__(self, parts: Sequence[Lengths]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, which: Any) -> Indices:
        lengths = np.empty(len(which), np.int64)
        for part, mine, own in self.owners(which):
            lengths[mine] = self._parts[part][own]
        return lengths

    def owners(self, indices: Indices) -> Iterator[tuple[int, npt.NDArray[np.bool_], Indices]]:
        """Yield each part that has some of the sentences, which ones, and their indices in the part."""
        owner = np.searchsorted(self._ends, indices, side="right")
        for part in np.unique(owner).tolist():
            mine = owner == part
            yield part, mine, indices[mine] - (self._ends[part] - len(self._parts[part]))


class JoinedCorpus(Corpus):
    """The training texts of several directories with one vocabulary, each with its weight."""

    def __init__(self, corpora: Sequence[Corpus], weights: Sequence[int]) -> None:
        self.split, self._corpora, self.weights = corpora[0].split, corpora, []
        self.source_lengths = self._source = JoinedLengths([corpus.source_lengths for corpus in corpora])
        self.target_lengths = JoinedLengths([corpus.target_lengths for corpus in corpora])
        begin = 0
        for corpus, weight in zip(corpora, weights, strict=True):
            self.weights += [(begin + first, begin + end, own * weight) for first, end, own in corpus.weights]
            begin += len(corpus)
        parts = [f"{corpus.fingerprint} {weight}" for corpus, weight in zip(corpora, weights, strict=True)]
        self.fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self._source)

    def ids(self, side: str, indices: Sequence[int] | Indices) -> tuple[Ids, Indices]:
        chosen = np.asarray(indices)
        lengths = (self.source_lengths if side == "source" else self.target_lengths)[chosen] - 1
        found = [(mine, self._corpora[part].ids(side, own)[0]) for part, mine, own in self._source.owners(chosen)]
        ids = np.empty(lengths.sum(), found[0][1].dtype if found else np.uint16)
        for mine, own_ids in found:
            ids[np.repeat(mine, lengths)] = own_ids
        return ids, lengths

    def verify(self) -> None:
        for corpus in self._corpora:
            corpus.verify()
