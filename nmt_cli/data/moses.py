"""Moses' punctuation normalisation and tokenisation, by sacremoses, and detokenisation.

sacremoses is a port. It differs from Moses' Perl scripts on few lines (a sentence-final number such
as `26.`). Most lines have nothing to normalise, and words are repeated, so tokens are cached by
word.
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
        language: two letters. Languages without rules use the rules of English.
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
        """Return what `tokenize` returns, joined from the tokens of each word, which are cached."""
        words = line.split()
        keys = words
        if "." in line[:-1]:
            # A full stop that ends a word belongs to it or not, by the next word's first character.
            keys = [
                f"{word} {following[0]}" if word[-1] == "." else word
                for word, following in pairwise(words)
            ]
            keys += words[-1:]
        tokens = list(map(self._cached_word, keys))
        if all(tokens):
            return " ".join(tokens)
        return str(self._whole(line))

    def _word(self, key: str) -> str:
        """Return the tokens of a word, or "" if they depend on more than `key`.

        `key` is the word, and possibly a space and the first character of the next word. An
        apostrophe or a comma at the edge of a word depends on its neighbours, or on the line's end.
        """
        marks_dots = "MULTI" in key  # sacremoses' mark of several dots
        if key.isalnum() and not marks_dots and not self.PAD_NOT_ISALNUM[0].search(key):
            return key
        word, _, after = key.partition(" ")
        if word[0] in "'," or word[-1] == "'" or not key.isprintable():
            return ""
        tokens = str(self._whole(key))
        if after:
            return tokens.removesuffix(f" {self._whole(after)}")
        return tokens

    # sacremoses makes a set of 100,000 characters in each call of these two.

    def islower(self, text: str) -> bool:
        return all(character in self.IsLower for character in text)

    def isanyalpha(self, text: str) -> bool:
        return any(character in self.IsAlpha for character in text)
