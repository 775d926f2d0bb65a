"""The interface of vocabularies: text to ids and back."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from nmt_cli.errors import DataError
from nmt_cli.interfaces import EOS, SPECIAL_SYMBOLS, Prefix, joined

if TYPE_CHECKING:
    from random import Random

    from nmt_cli.interfaces import Ragged

    Sampler = Callable[[str, Random], list[int]]

UNKNOWN_TEXT = " \u2047 "  # the text of the id UNK: SentencePiece's double question mark between spaces
SPACE = "\u2581"
_LONGEST_OPEN_TEXT = 32


class Vocabulary(ABC):
    """Text to ids and back."""

    kind: str  # one of `subwords.kinds()`
    lists_symbols = False  # symbols are among its own entries

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def encode(self, text: str) -> list[int]: ...

    def encode_lines(self, lines: Sequence[str]) -> Ragged:
        """Return what `encode` returns for each line: all ids in one array, and the number of ids in each line."""
        return joined([self.encode(line) for line in lines])

    def sampler(self, make: Callable[[Vocabulary], Sampler]) -> Sampler:
        """Return what draws segmentations of text at random: `make` makes it of a vocabulary without symbols."""
        return make(self)

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`; PAD, BOS and EOS have none, UNK has `UNKNOWN_TEXT`."""

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the written form of each id."""

    @property
    @abstractmethod
    def texts(self) -> list[str]:
        """The text that each id adds to a line, spaces as U+2581; "" for special symbols and single bytes."""

    @abstractmethod
    def serialise(self) -> bytes:
        """Return the content of the vocabulary's file."""

    def encode_prefix(self, text: str) -> Prefix:
        """Return how the ids of a line begin that begins with `text`, which does not begin with a space.

        The words before the last space are encoded. What follows it may be the beginning of a word: its pieces are left
        open, because `Ha` is often not the first piece of `Haus`. Of a long or unknown word, the last letters are.
        """
        words, _, beginning = text.rpartition(" ")
        rest = SPACE + beginning
        if len(rest) <= _LONGEST_OPEN_TEXT and self.continuations.of(rest):
            return Prefix(self.encode(words), rest)
        ids, rest = self.encode(text), ""
        while ids and (piece := self.texts[ids[-1]]) and len(piece + rest) <= _LONGEST_OPEN_TEXT:
            ids, rest = ids[:-1], piece + rest
        return Prefix(ids, rest)

    @cached_property
    def continuations(self) -> Continuations:
        """The ids that continue a text."""
        return Continuations(self.texts)

    def _checked(self, ids: Sequence[int]) -> list[int]:
        """Return the ids as Python integers; raise DataError if one is out of range."""
        plain, size = [int(i) for i in ids], len(self)
        for i in plain:
            if not 0 <= i < size:
                raise DataError(f"the id {i} is out of range for this vocabulary of {size} entries")
        return plain


class Listed(Vocabulary):
    """A vocabulary that is a list of pieces."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = list(pieces)
        if tuple(self._pieces[: len(SPECIAL_SYMBOLS)]) != SPECIAL_SYMBOLS:
            raise DataError(f"not a vocabulary: it starts with {self._pieces[:4]}, not {', '.join(SPECIAL_SYMBOLS)}")
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if i > EOS}

    def __len__(self) -> int:
        return len(self._pieces)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[i] for i in self._checked(ids)]

    def serialise(self) -> bytes:
        content = {"kind": self.kind, "pieces": self._pieces}
        return (json.dumps(content, ensure_ascii=False, indent=0) + "\n").encode()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._pieces,)


class Continuations:
    """Finds the pieces with which a line can go on where the next letters are given, by the text of each id."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._ids = {text: i for i, text in enumerate(texts) if text}
        self._sorted = sorted(self._ids)
        self._longest = max(map(len, self._sorted), default=0)
        self.of = lru_cache(1024)(self._of)

    def _of(self, rest: str) -> Mapping[int, str]:
        """Return the ids that may come next where the text `rest` must follow, each with what then is left of `rest`.

        A piece that is only the beginning of `rest` is left out if no pieces spell what is left.
        """
        left = self._spelled(rest)
        found = {i: rest[size:] for size, i in self._beginnings(rest) if left[size]}
        return found | {self._ids[text]: "" for text in self._starting_with(rest)}

    def _spelled(self, rest: str) -> list[bool]:
        """For each position of `rest`, whether pieces can spell what begins there; the last may go on beyond it."""
        spelled = [True] * (len(rest) + 1)
        for start in reversed(range(len(rest))):
            tail = rest[start:]
            spelled[start] = any(spelled[start + size] for size, _ in self._beginnings(tail)) or any(
                True for _ in self._starting_with(tail)
            )
        return spelled

    def _beginnings(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the length and id of each piece that `text` begins with."""
        for size in range(1, min(len(text), self._longest) + 1):
            if (i := self._ids.get(text[:size])) is not None:
                yield size, i

    def _starting_with(self, text: str) -> Iterator[str]:
        """Yield the pieces that begin with `text`."""
        for place in range(bisect_left(self._sorted, text), len(self._sorted)):
            if not self._sorted[place].startswith(text):
                return
            yield self._sorted[place]
