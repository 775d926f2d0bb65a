"""Unicode normalisation of lines, so that a character has one form: by SentencePiece's rules, NFC or NFD."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, partial

NONE = "none"
RULES = ("nmt_nfkc", "nfkc", "nfc", "nfd", NONE)

# Only NFD changes lines of these characters alone. Most lines are such, and this is five times as fast.
_unchanged = re.compile("[ -~À-ÖØ-öø-ıĴ-ľŁ-ňŊ-ž–—‘-„]*").fullmatch


def normalised(lines: Sequence[str], rule: str) -> Sequence[str]:
    """Return the lines, each normalised by one of `RULES`.

    The spaces of a line stay, but a character at its beginning or end that becomes a space, as U+200B does, is removed:
    nobody sees it, and `str.strip` does not remove it.
    """
    if rule == NONE:
        return lines
    normalise, unchanged = _normaliser(rule), str.isascii if rule == "nfd" else _unchanged
    return [line if (line.isascii() and line.isprintable()) or unchanged(line) else normalise(line) for line in lines]


def composed(line: str, rule: str) -> str:
    """Return an output of a model whose text was normalised by `rule`: after NFD, with composed letters (NFC)."""
    return unicodedata.normalize("NFC", line) if rule == "nfd" else line


def comparable(line: str) -> str:
    """Return a line as exact match compares it: two encodings of one text are equal, and so are spaces at its ends."""
    return unicodedata.normalize("NFC", line).strip()


@cache
def _normaliser(rule: str) -> Callable[[str], str]:
    if rule in ("nfc", "nfd"):
        return partial(unicodedata.normalize, "NFC" if rule == "nfc" else "NFD")
    import sentencepiece

    normaliser = sentencepiece.SentencePieceNormalizer(
        rule_name=rule, add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=False
    )

    def normalise(line: str) -> str:
        text = str(normaliser.Normalize(line))
        text = text if line[:1].isspace() else text.lstrip(" ")
        return text if line[-1:].isspace() else text.rstrip(" ")

    return normalise
