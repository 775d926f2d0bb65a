"""Symbols such as the tags <2de> and <bt>: one id each, anywhere in a line, never changed.

They are words of their own: the text on each side of one has the ids that it would have as a line,
and `decode` puts a space on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import groupby, islice
from typing import TYPE_CHECKING

from nmt_cli.data.vocabulary import SPACE, Vocabulary
from nmt_cli.errors import UsageError, shown
from nmt_cli.interfaces import SPECIAL_SYMBOLS

if TYPE_CHECKING:
    from nmt_cli.data.vocabulary import Sampler
    from nmt_cli.interfaces import Ragged


SYMBOL = re.compile(r"<[^<>\s,\u2581]+>")


class Symbols:
    """Finds symbols in lines.

    Raises:
        UsageError: a symbol is not of the form <NAME>, is there twice, or is a special symbol.
    """

    def __init__(self, names: Sequence[str]) -> None:
        for name in names:
            if not SYMBOL.fullmatch(name) or name in SPECIAL_SYMBOLS or names.count(name) > 1:
                raise UsageError(
                    f"--symbols: {shown(name)} cannot be one; give distinct names in brackets: "
                    "<2de>,<bt>"
                )
        self.names = list(names)
        self.numbers = {name: number for number, name in enumerate(names)}
        any_name = "|".join(map(re.escape, names))
        self._pattern = re.compile(f"[ {SPACE}]*({any_name})[ {SPACE}]*")

    def split(self, line: str) -> list[str]:
        """Return the text before the first symbol, the symbol, the text after it, and so on."""
        return self._pattern.split(line)

    def changed(
        self, lines: Sequence[str], change: Callable[[Sequence[str]], Iterable[str]]
    ) -> list[str]:
        """Return the lines with their text, but not their symbols, changed."""
        split_lines = [self.split(line) for line in lines]
        texts = [text for parts in split_lines for text in parts[::2]]
        # Text that has become a symbol, as <BT> in lower case, stays text.
        changed = (self._pattern.sub(_divided, text) for text in change(texts))
        changed_lines = []
        for parts in split_lines:
            parts[::2] = islice(changed, len(parts[::2]))
            changed_lines.append(" ".join(filter(None, parts)) if len(parts) > 1 else parts[0])
        return changed_lines

    def without(self, line: str) -> str:
        """Return the text of the line beside its symbols."""
        return " ".join(filter(None, self.split(line)[::2]))

    def texts(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the text between symbols."""
        return (text for line in lines for text in self.split(line)[::2] if text)


def _divided(symbol: re.Match[str]) -> str:
    return symbol[0].replace("<", "< ")


class WithSymbols(Vocabulary):
    """A vocabulary of words with symbols, whose ids follow the words' ids."""

    def __init__(self, words: Vocabulary, symbols: Symbols) -> None:
        self.words = words
        self.symbols = symbols
        self.kind = words.kind

    def __len__(self) -> int:
        return len(self.words) + len(self.symbols.names)

    def _id(self, name: str) -> int:
        return len(self.words) + self.symbols.numbers[name]

    def encode(self, text: str) -> list[int]:
        return self.encoded_apart(text, self.words.encode)

    def encoded_apart(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Return the ids of a line, of which `encode` encodes the text beside symbols."""
        first, *rest = self.symbols.split(text)
        ids = list(encode(first))
        for name, following in zip(rest[::2], rest[1::2], strict=True):
            ids.append(self._id(name))
            ids += encode(following)
        return ids

    def encode_lines(self, lines: Sequence[str]) -> Ragged:
        import numpy as np  # not at the top: help of commands comes sooner without it

        split_lines = [self.symbols.split(line) for line in lines]
        texts = [text for parts in split_lines for text in parts[::2]]
        if len(texts) == len(lines):  # no symbols, as in most text
            return self.words.encode_lines(lines)
        ids, lengths = self.words.encode_lines(texts)
        symbols = [self._id(name) for parts in split_lines for name in parts[1::2]]
        texts_in_line = np.array([len(parts[::2]) for parts in split_lines])
        ends = np.cumsum(texts_in_line)
        # A symbol follows each text but the last one of a line.
        places = np.delete(np.cumsum(lengths), ends - 1)
        symbols_in_line = texts_in_line - 1
        sizes = np.add.reduceat(lengths, ends - texts_in_line) + symbols_in_line
        return np.insert(ids, places, symbols), sizes

    def decode(self, ids: Sequence[int]) -> str:
        texts = []
        for are_symbols, run in groupby(self._checked(ids), lambda i: i >= len(self.words)):
            if are_symbols:
                texts += self.pieces(list(run))
            else:
                texts.append(self.words.decode(list(run)))
        return " ".join(texts)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        size = len(self.words)
        pieces = []
        for i in self._checked(ids):
            if i < size:
                pieces += self.words.pieces([i])
            else:
                pieces.append(self.symbols.names[i - size])
        return pieces

    def sampler(self, make: Callable[[Vocabulary], Sampler]) -> Sampler:
        sample = make(self.words)
        return lambda text, random: self.encoded_apart(text, lambda part: sample(part, random))

    @cached_property
    def texts(self) -> list[str]:
        return self.words.texts + [""] * len(self.symbols.names)

    def serialise(self) -> bytes:
        return self.words.serialise() + ",".join(self.symbols.names).encode()


@lru_cache
def symbols_of(names: str) -> Symbols | None:
    """Return the symbols whose names have commas between them, or None for no names."""
    if not names:
        return None
    return Symbols([name.strip() for name in names.split(",")])
