"""Moses' punctuation normalisation and tokenisation, by sacremoses, and detokenisation.

sacremoses is a port; it differs from Moses' Perl scripts on few lines (a sentence-final number such
as `26.`). Most lines have nothing to normalise, and words are repeated, so that tokens are cached
by word.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import sacremoses

# All rules of punctuation have another character than these, or two of one.
_has_punctuation = re.compile(r"[^\w .,!?'-]|  |''").search


class Moses:
    """Normaliser, tokeniser and detokeniser of one language.

    Args:
        language: two letters; languages without rules of their own use those of English.
        escape: write `&apos;`, `&quot;`, `&amp;`, `&#124;`, `&lt;`, `&gt;`, `&#91;`, `&#93;` for
            the characters, as Moses' scripts do by default.
    """

    def __init__(self, language: str, escape: bool = False) -> None:
        self._language, self._escape = language, escape
        self._normaliser = sacremoses.MosesPunctNormalizer(language)
        self._tokeniser = Tokeniser(language, escape)
        self._detokeniser = sacremoses.MosesDetokenizer(lang=language)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._language, self._escape)

    def tokenise(self, line: str) -> str:
        """Return the normalised tokens of the line, separated by single spaces."""
        if _has_punctuation(line):
            line = str(self._normaliser.normalize(line))
        return self._tokeniser.tokenise(line)

    def detokenise(self, tokens: str) -> str:
        """Return the text of tokens separated by spaces."""
        return str(self._detokeniser.detokenize(tokens.split(" "), unescape=self._escape))


class Tokeniser(sacremoses.MosesTokenizer):  # type: ignore[misc]
    """`sacremoses.MosesTokenizer` of a language."""

    def __init__(self, language: str, escape: bool) -> None:
        super().__init__(lang=language)
        self._whole = partial(self.tokenize, return_str=True, escape=escape)
        self._cached_word = lru_cache(1 << 16)(self._word)

    def tokenise(self, line: str) -> str:
        """Return what `tokenize` returns, joined from the tokens of each word, most of which are
        cached.
        """
        keys = words = line.split()
        if (
            "." in line[:-1]
        ):  # a full stop that ends a word belongs to it or not, by the first character of the next
            keys = [f"{a} {b[0]}" if a[-1] == "." else a for a, b in pairwise(words)] + words[-1:]
        tokens = list(map(self._cached_word, keys))
        return " ".join(tokens) if all(tokens) else str(self._whole(line))

    def _word(self, key: str) -> str:
        """Return the tokens of a word, which the first character of the next may follow; "" if they
        depend on more.

        An apostrophe or a comma at the edge of a word is treated by its neighbours, or otherwise at
        a line's ends.
        """
        if key.isalnum() and "MULTI" not in key and not self.PAD_NOT_ISALNUM[0].search(key):
            return key  # MULTI marks several dots
        word, _, after = key.partition(" ")
        if word[0] in "'," or word[-1] == "'" or not key.isprintable():
            return ""
        return str(self._whole(key)).removesuffix(f" {self._whole(after)}" if after else "")

    # Without a set of 100,000 characters, which sacremoses makes in each call.

    def islower(self, text: str) -> bool:
        return all(character in self.IsLower for character in text)

    def isanyalpha(self, text: str) -> bool:
        return any(character in self.IsAlpha for character in text)
