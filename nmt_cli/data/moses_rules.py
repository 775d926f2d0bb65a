"""sacremoses's rules, applied only to the lines that they can change.

Each of its sixty substitutions passes over every line, though most concern characters that few lines have. Here each
looks first for the characters that its pattern cannot do without.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import sacremoses

_LONG_CLASS = re.compile(r"\[[^\]]{100,}\]")  # thousands of characters, which take long to parse


class Substitution:
    """A compiled pattern whose `sub` leaves a line alone that lacks the literal characters of the pattern."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.needed = needed_text(pattern.pattern)
        self.pattern = pattern

    def sub(self, replacement: str, text: str) -> str:
        """Return what `re.Pattern.sub` does."""
        return self.pattern.sub(replacement, text) if self.needed in text else text


class OneSpace:
    """A pattern of runs of white space; those at the ends of the line, which sacremoses strips later, go at once."""

    def sub(self, _: str, text: str) -> str:
        """Return the words, one space between them."""
        return " ".join(text.split())


def needed_text(pattern: str) -> str:
    """Return the longest text that stands in every match of a pattern without flags; it may be empty."""
    runs = [""]
    for code, value in parser.parse(_LONG_CLASS.sub(".", pattern)):
        if code is codes.LITERAL:
            runs[-1] += chr(value)
        else:
            runs.append("")
    return max(runs, key=len)


class Normaliser:
    """`sacremoses.MosesPunctNormalizer` of a language."""

    def __init__(self, language: str) -> None:
        rules = sacremoses.MosesPunctNormalizer(lang=language).substitutions
        self._rules = [(Substitution(re.compile(pattern)), replacement) for pattern, replacement in rules]
        for substitution, replacement in self._rules:
            if (substitution.pattern.pattern, replacement) == (" +", " "):
                substitution.needed = "  "  # one space becomes itself

    def normalise(self, line: str) -> str:
        """Return the line with its punctuation normalised."""
        for substitution, replacement in self._rules:
            line = substitution.sub(replacement, line)
        return line.strip()


class Tokeniser(sacremoses.MosesTokenizer):  # type: ignore[misc]
    """`sacremoses.MosesTokenizer` of a language."""

    def __init__(self, language: str) -> None:
        super().__init__(lang=language)
        for name in filter(str.isupper, dir(type(self))):
            setattr(self, name, _rules(getattr(self, name)))
        self.DEDUPLICATE_SPACE = OneSpace(), " "
        self._end = lru_cache(1 << 16)(self._uncached_end)

    def handles_nonbreaking_prefixes(self, text: str) -> str:
        """Separate full stops from the tokens that they end, except for abbreviations."""
        tokens = text.split()
        for i, (token, after) in enumerate(zip(tokens, [*tokens[1:], ""], strict=False)):
            if token[-1] == ".":
                tokens[i] = self._end(token, after[:1])
        return " ".join(tokens)

    def _uncached_end(self, token: str, after: str) -> str:
        """Return a token that ends with a full stop; `after` is the first character of the next one, if any."""
        text = str(super().handles_nonbreaking_prefixes(f"{token} {after}"))
        return text.removesuffix(f" {after}") if after else text


def _rules(value: Any) -> Any:
    """Return sacremoses's rule, or list of rules, with its pattern as a `Substitution`; another value as it is."""
    match value:
        case list():
            return [_rules(rule) for rule in value]
        case (re.Pattern() as pattern, replacement):
            return Substitution(pattern), replacement
        case _:
            return value
