"""Several prepared corpora as one, without a copy: the parts stay mapped into memory, each in its directory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from nmt_cli.data.corpus import Corpus, Ids, Lengths


class JoinedLengths(Lengths):
    """The lengths of the sentences of all parts, by an array of their indices in the joined corpus."""

    def __init__(self, parts: Sequence[Lengths]) -> None:
        self._parts, self._ends = parts, np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, which: Any) -> Ids:
        lengths = np.empty(len(which), np.int64)
        for part, mine, own in self.owners(which):
            lengths[mine] = self._parts[part][own]
        return lengths

    def owners(self, indices: Ids) -> Iterator[tuple[int, Ids, Ids]]:
        """Yield each part with some of the sentences: its number, a mask of them, and their indices in the part."""
        owner = np.searchsorted(self._ends, indices, side="right")
        for part in np.unique(owner).tolist():
            mine = owner == part
            yield part, mine, indices[mine] - (self._ends[part] - len(self._parts[part]))


class JoinedCorpus(Corpus):
    """The same split of several directories with one vocabulary, each with its weight."""

    def __init__(self, corpora: Sequence[Corpus], weights: Sequence[int]) -> None:
        self.split, self._corpora = corpora[0].split, corpora
        self.source_lengths = JoinedLengths([corpus.source_lengths for corpus in corpora])
        self.target_lengths = JoinedLengths([corpus.target_lengths for corpus in corpora])
        *begins, self._sentences = accumulate(map(len, corpora), initial=0)
        self.weights = [
            (begin + first, begin + end, own * weight)
            for begin, corpus, weight in zip(begins, corpora, weights, strict=True)
            for first, end, own in corpus.weights
        ]
        parts = [f"{corpus.fingerprint} {weight}" for corpus, weight in zip(corpora, weights, strict=True)]
        self.fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        self._sums = {path: found for corpus in corpora for path, found in corpus._sums.items()}

    def ids(self, side: str, indices: Sequence[int] | Ids) -> tuple[Ids, Ids]:
        chosen = np.asarray(indices)
        all_lengths: JoinedLengths = getattr(self, f"{side}_lengths")
        lengths = all_lengths[chosen] - 1
        ids = np.empty(lengths.sum(), np.int64)
        for part, mine, own in all_lengths.owners(chosen):
            ids[np.repeat(mine, lengths)] = self._corpora[part].ids(side, own)[0]
        return ids, lengths
