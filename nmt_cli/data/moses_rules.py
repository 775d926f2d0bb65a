"""sacremoses's rules, applied only to the lines and words that they can change.

Its substitutions pass over every line, though most concern characters that few lines have, and words are repeated. So
those of punctuation first look for the characters that their patterns cannot do without, and tokens are cached by word.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from itertools import pairwise
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

import sacremoses


def needed_text(pattern: str) -> str:
    """Return the longest text that stands in every match of a pattern without flags; it may be empty."""
    runs = [""]
    for code, value in parser.parse(pattern):
        if code is codes.LITERAL:
            runs[-1] += chr(value)
        else:
            runs.append("")
    return max(runs, key=len)


class Normaliser:
    """`sacremoses.MosesPunctNormalizer` of a language."""

    def __init__(self, language: str) -> None:
        rules = sacremoses.MosesPunctNormalizer(lang=language).substitutions
        # One space becomes itself.
        needed = ["  " if rule == (" +", " ") else needed_text(rule[0]) for rule in rules]
        self._rules = [(text, re.compile(rule[0]), rule[1]) for text, rule in zip(needed, rules, strict=True)]
        self._concerned = re.compile("|".join(map(re.escape, needed))).search

    def normalise(self, line: str) -> str:
        """Return the line with its punctuation normalised."""
        if self._concerned(line):
            for text, pattern, replacement in self._rules:
                if text in line:
                    line = pattern.sub(replacement, line)
        return line.strip()


class Tokeniser(sacremoses.MosesTokenizer):  # type: ignore[misc]
    """`sacremoses.MosesTokenizer` of a language."""

    def __init__(self, language: str, escape: bool) -> None:
        super().__init__(lang=language)
        self._whole = partial(self.tokenize, return_str=True, escape=escape)
        self._cached_word = lru_cache(1 << 16)(self._word)

    def tokenise(self, line: str) -> str:
        """Return what `tokenize` returns, joined from the tokens of each word, most of which are cached."""
        keys = words = line.split()
        if "." in line[:-1]:  # a full stop that ends a word belongs to it or not, by the first character of the next
            keys = [f"{a} {b[0]}" if a[-1] == "." else a for a, b in pairwise(words)] + words[-1:]
        tokens = list(map(self._cached_word, keys))
        return " ".join(tokens) if all(tokens) else str(self._whole(line))

    def _word(self, key: str) -> str:
        """Return the tokens of a word, which the first character of the next may follow; "" if they depend on more.

        An apostrophe or a comma at the edge of a word is treated by its neighbours, or otherwise at a line's ends.
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
