"""Symbols such as the tags <2de> and <bt>: one id each, wherever they stand in a line, and never
changed.

They are words of their own: the text on each side of one has the ids that it would have as a line,
and `decode` puts a space on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
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
        longest_first = sorted(names, key=len, reverse=True)
        self._pattern = re.compile(
            f"[ {SPACE}]*({'|'.join(map(re.escape, longest_first))})[ {SPACE}]*"
        )

    def split(self, line: str) -> list[str]:
        """Return the text before the first symbol, the symbol, the text after it, and so on."""
        return self._pattern.split(line)

    def changed(
        self, lines: Sequence[str], change: Callable[[Sequence[str]], Iterable[str]]
    ) -> list[str]:
        """Return the lines with their text, but not their symbols, changed."""
        parts = list(map(self.split, lines))
        changed = change([text for part in parts for text in part[::2]])
        # Text that has become a symbol, as <BT> in lower case, stays text.
        texts = iter(
            self._pattern.sub(lambda found: found[0].replace("<", "< "), text) for text in changed
        )
        for part in parts:
            part[::2] = [next(texts) for _ in part[::2]]
        return [" ".join(filter(None, part)) if len(part) > 1 else part[0] for part in parts]

    def without(self, line: str) -> str:
        return " ".join(filter(None, self.split(line)[::2]))

    def texts(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the text between symbols."""
        return (text for line in lines for text in self.split(line)[::2] if text)


class WithSymbols(Vocabulary):
    """A vocabulary and, after its ids, those of symbols."""

    def __init__(self, words: Vocabulary, symbols: Symbols) -> None:
        self.words, self.symbols, self.kind = words, symbols, words.kind

    def __len__(self) -> int:
        return len(self.words) + len(self.symbols.names)

    def _id(self, name: str) -> int:
        return len(self.words) + self.symbols.numbers[name]

    def encode(self, text: str) -> list[int]:
        return self.encoded_apart(text, self.words.encode)

    def encoded_apart(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Return the ids of a line, of which `encode` encodes the text beside symbols."""
        parts = self.symbols.split(text)
        ids = [*encode(parts[0])]
        for name, following in zip(parts[1::2], parts[2::2], strict=True):
            ids += [self._id(name), *encode(following)]
        return ids

    def encode_lines(self, lines: Sequence[str]) -> Ragged:
        import numpy as np  # not at the top: help of commands comes sooner without it

        parts = list(map(self.symbols.split, lines))
        texts = [text for part in parts for text in part[::2]]
        if len(texts) == len(lines):
            return self.words.encode_lines(lines)
        ids, lengths = self.words.encode_lines(texts)
        symbols = [self._id(name) for part in parts for name in part[1::2]]
        texts_of_line = np.array([len(part[::2]) for part in parts])
        ends = np.cumsum(texts_of_line)
        # The last text of a line has no symbol after it.
        before_symbols = np.delete(np.cumsum(lengths), ends - 1)
        sizes = np.add.reduceat(lengths, ends - texts_of_line) + texts_of_line - 1
        return np.insert(ids, before_symbols, symbols), sizes

    def decode(self, ids: Sequence[int]) -> str:
        runs = groupby(self._checked(ids), lambda i: i >= len(self.words))
        texts = (
            " ".join(self.pieces(list(run))) if symbols else self.words.decode(list(run))
            for symbols, run in runs
        )
        return " ".join(texts)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        size = len(self.words)
        return [
            self.symbols.names[i - size] if i >= size else self.words.pieces([i])[0]
            for i in self._checked(ids)
        ]

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
    """Return the symbols that `names` has, with commas between them; None if it is empty."""
    return Symbols([name.strip() for name in names.split(",")]) if names else None
