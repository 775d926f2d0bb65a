"""The interface of vocabularies: text to ids and back."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nmt_cli.errors import DataError
from nmt_cli.interfaces import EOS, SPECIAL_SYMBOLS, ragged

if TYPE_CHECKING:
    from random import Random

    from nmt_cli.interfaces import Ragged

    Sampler = Callable[[str, Random], list[int]]

# The text of the id UNK: SentencePiece's double question mark between spaces.
UNKNOWN_TEXT = " \u2047 "
SPACE = "\u2581"


class Vocabulary(ABC):
    """Text to ids and back."""

    kind: str  # one of `subwords.kinds()`
    lists_symbols = False  # symbols are among its own entries
    spaces_follow = False  # in `texts`, a word's space follows it

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def encode(self, text: str) -> list[int]: ...

    def encode_lines(self, lines: Sequence[str]) -> Ragged:
        """Return the ids of all lines in one array, and the number of ids in each line."""
        return ragged([self.encode(line) for line in lines])

    def sampler(self, make: Callable[[Vocabulary], Sampler]) -> Sampler:
        """Return `make` of the vocabulary without its symbols. It draws segmentations of a text."""
        return make(self)

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`. PAD, BOS and EOS have none, UNK has `UNKNOWN_TEXT`."""

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the written form of each id."""

    @property
    @abstractmethod
    def texts(self) -> list[str]:
        """The text that each id adds to a line, spaces as U+2581. Special symbols and bytes: ""."""

    @abstractmethod
    def serialise(self) -> bytes:
        """Return the content of the vocabulary's file."""

    def _checked(self, ids: Sequence[int]) -> list[int]:
        """Return the ids as Python integers. Raise DataError if one is out of range."""
        size = len(self)
        numbers = [int(i) for i in ids]
        for i in numbers:
            if not 0 <= i < size:
                raise DataError(f"the id {i} is out of range for this vocabulary of {size} entries")
        return numbers


class Listed(Vocabulary):
    """A vocabulary that is a list of pieces."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = list(pieces)
        if tuple(self._pieces[: len(SPECIAL_SYMBOLS)]) != SPECIAL_SYMBOLS:
            raise DataError(
                f"not a vocabulary: it starts with {self._pieces[:4]}, not "
                f"{', '.join(SPECIAL_SYMBOLS)}"
            )
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
