"""Unicode normalisation of lines by SentencePiece's rules, NFC or NFD: one form of a character.

SentencePiece's rules also remove what nobody sees: runs of spaces become one, and spaces at the
ends and invisible characters go.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, partial

import regex

NONE = "none"
RULES = ("nmt_nfkc", "nfkc", "nfc", "nfd", NONE)

VERSION = 2  # of SentencePiece's rules here
"""Version 1 is nmt 1.0's: runs of spaces and most invisible characters stay."""

# Controls, Unicode's Default_Ignorable_Code_Point without `JOINERS`, and marks of annotations.
INVISIBLE = (
    "\0-\x08\x0e-\x1f\x7f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
WINDOWS_1252 = "\x80-\x9f"  # C1 controls, which are its quotation marks and dashes read as Latin-1
# The spaces that NFKC leaves as they are. U+2581 stands for a space in our pieces.
SPACES = "\t-\r\u1680\u2028\u2029\u2581\u2800\u3164\uffa0"
JOINERS = "\u200c\u200d\u180b-\u180f"  # ZWNJ, ZWJ, and the variants of Mongolian letters

# Only NFD changes lines of these characters alone. Most lines have no others, and this test makes
# them five times as fast.
_unchanged = re.compile("[ -~À-ÖØ-öø-ıĴ-ľŁ-ňŊ-ž–—‘-„]*").fullmatch
# Tag characters stay in the flags of England, Scotland and Wales, which begin with a black flag.
_invisible = regex.compile(f"[{INVISIBLE}](?<!\U0001f3f4[\U000e0020-\U000e007f]{{1,7}})")
_windows_1252 = re.compile(f"[{WINDOWS_1252}]")
_spaces = re.compile(f"[{SPACES}]")
# Joiners without a letter that they shape. ZWNJ and ZWJ stay between letters of which the first
# joins the second (RFC 5892, appendix A.1), beside a virama (combining class 9), and between emoji.
# Of several in a row, the first counts. Nothing looks back over a run of characters from each of
# them: a line may be a megabyte of marks.
_idle_joiners = regex.compile(
    r"""(?<=[\u200c\u200d])[\u200c\u200d]
    |(?=[\u200c\u200d])(?!
        (?<=[\p{jt=D}\p{jt=L}]\p{jt=T}*)[\u200c\u200d]+\p{jt=T}*[\p{jt=D}\p{jt=R}]
        |(?<=\p{ccc=9})
        |[\u200c\u200d]+\p{ccc=9}
        |(?<=\p{Extended_Pictographic}\p{Emoji_Modifier}?)[\u200c\u200d]+\p{Extended_Pictographic}
    )[\u200c\u200d]
    |(?<![\u180b-\u180f\u1820-\u18aa])[\u180b-\u180f]+""",
    regex.VERBOSE,
)


def normalised(lines: Sequence[str], rule: str, version: int = VERSION) -> Sequence[str]:
    """Return the lines, each normalised by one of `RULES`."""
    if rule == NONE:
        return lines
    normalise = _normaliser(rule, version)
    unchanged = str.isascii if rule == "nfd" else _unchanged
    texts = [
        line if (line.isascii() and line.isprintable()) or unchanged(line) else normalise(line)
        for line in lines
    ]
    if cleans(rule, version):
        return [
            " ".join(text.split()) if "  " in text or text != text.strip() else text
            for text in texts
        ]
    return texts


def cleans(rule: str, version: int) -> bool:
    """Return whether the rule removes what nobody sees."""
    return rule in ("nmt_nfkc", "nfkc") and version > 1


def comparable(line: str) -> str:
    """Return a line as exact match compares it: in NFC, without spaces at its ends."""
    return unicodedata.normalize("NFC", line).strip()


@cache
def _normaliser(rule: str, version: int) -> Callable[[str], str]:
    if rule == "nfc":
        return partial(unicodedata.normalize, "NFC")
    if rule == "nfd":
        return partial(unicodedata.normalize, "NFD")
    import sentencepiece

    normaliser = sentencepiece.SentencePieceNormalizer(
        rule_name=rule,
        add_dummy_prefix=False,
        escape_whitespaces=False,
        remove_extra_whitespaces=False,
    )

    def windows_1252(match: re.Match[str]) -> str:
        return match[0].encode("latin-1").decode("cp1252", "ignore")

    def normalise(line: str) -> str:
        text = _windows_1252.sub(windows_1252, line)
        text = _spaces.sub(" ", text)
        text = _invisible.sub("", text)
        text = _idle_joiners.sub("", text)
        parts = re.split("([\u200c\u200d])", text)  # SentencePiece would make spaces of them
        parts[::2] = map(normaliser.Normalize, parts[::2])
        text = "".join(parts)
        # NFKC takes the vowel sign AM of Thai and of Lao apart. No keyboard writes its parts.
        return text.replace("\u0e4d\u0e32", "\u0e33").replace("\u0ecd\u0eb2", "\u0eb3")

    def normalise_as_before(line: str) -> str:
        """Keep spaces, but remove a character at an end that becomes a space, as U+200B does."""
        text = str(normaliser.Normalize(line))
        if not line[:1].isspace():
            text = text.lstrip(" ")
        if not line[-1:].isspace():
            text = text.rstrip(" ")
        return text

    if version == 1:
        return normalise_as_before
    return normalise
