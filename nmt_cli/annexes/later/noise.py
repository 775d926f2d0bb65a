"""Noise of `nmt train --noise`: capitals, typos and missing full stops.

A tag in angle brackets (`<2de>`) and an escaped character (`&apos;`) stay as they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from random import Random

from nmt_cli.errors import UsageError, nearest, shown

CHARACTERS_PER_TYPO = 20  # an altered line has a typo for each, and at least one
# A translation keeps the capitals of its source, but not its typos and missing stops.
BOTH_SIDES = frozenset({"upper", "title"})

_KEYS = " qwertyuiop asdfghjkl zxcvbnm йцукенгшщзхъ фывапролджэ ячсмитьбю "
_KEPT = r"(<[^<>\s]+>|&#?\w+;)"
_WORD = re.compile(rf"{_KEPT}|\w+")
_INITIAL = re.compile(rf"{_KEPT}|(?<!\S)[^\w\s<&]*\w")
_LETTER = re.compile(rf"{_KEPT}|[^\W\d_](?=[^\W\d_])")  # before another one
_FINAL_STOP = re.compile(r"(?<=[^\s.])\s*[.。।]$")  # not an ellipsis, nor the whole line


def parsed(text: str) -> dict[str, float]:
    """Return the probability of each kind of noise in `upper=0.05,typos=0.1`.

    They are in the order of `CHANGES`.

    Raises:
        UsageError: a name is unknown or there twice, a probability is not between 0 and 1, or upper
            and title, which exclude each other, have more than 1 together.
    """
    noise = dict.fromkeys(CHANGES, 0.0)
    if not text:
        return noise
    given = set()
    for part in text.split(","):
        name, _, value = map(str.strip, part.partition("="))
        if name in given:
            raise UsageError(f"--noise: {shown(name)} is there twice")
        if name not in CHANGES:
            raise UsageError(
                f"--noise: {shown(name)} is not a kind of noise. {nearest(name, CHANGES)}"
            )
        if not re.fullmatch(r"\d*\.?\d+", value) or float(value) > 1:
            raise UsageError(
                f"--noise: {name} takes a probability from 0 to 1, such as {name}=0.05, not "
                f"{shown(value)}"
            )
        given.add(name)
        noise[name] = float(value)
    if noise["upper"] + noise["title"] > 1:
        raise UsageError(
            "--noise: upper and title exclude each other, so their sum must be at most 1"
        )
    return noise


def drawn(noise: Mapping[str, float], random: Random) -> list[str]:
    """Return the kinds of noise that a sentence pair gets."""
    draws = {name: random.random() for name in noise}
    # The same draw as for upper: not both.
    draws["title"] = draws["upper"] - noise["upper"]
    return [name for name, probability in noise.items() if 0 <= draws[name] < probability]


def altered(kinds: list[str], random: Random, source: str, target: str) -> tuple[str, str]:
    """Return a sentence pair with these kinds of noise."""
    for kind in kinds:
        source = CHANGES[kind](source, random)
        if kind in BOTH_SIDES:
            target = CHANGES[kind](target, random)
    return source, target


def _capitalised(text: str, pattern: re.Pattern[str]) -> str:
    """Return `text` with capitals where `pattern` matches, except for what stays as it is."""

    def capitalise(match: re.Match[str]) -> str:
        stays = match[1] is not None
        return match[0] if stays else match[0].upper()

    return pattern.sub(capitalise, text)


def _with_typos(text: str, random: Random) -> str:
    """Return `text` with letters swapped, dropped, doubled or mistyped."""
    has_separate_marks = not unicodedata.is_normalized("NFC", text)
    if has_separate_marks and unicodedata.is_normalized("NFD", text):
        composed = unicodedata.normalize("NFC", text)
        return unicodedata.normalize("NFD", _with_typos(composed, random))
    letters = list(text)
    places = [match.start() for match in _LETTER.finditer(text) if not match[1]]
    typos = max(1, len(text) // CHARACTERS_PER_TYPO)
    for place in random.sample(places, min(typos, len(places))):
        kind = random.randrange(4)
        letter = letters[place]
        key = _KEYS.find(letter.lower())
        if kind == 0:
            letters[place : place + 2] = reversed(letters[place : place + 2])
        elif kind == 1:
            letters[place] *= 2
        elif kind == 2 and key > 0:
            keys_beside = _KEYS[key - 1] + _KEYS[key + 1]
            typed = random.choice(keys_beside.strip())
            if letter.isupper():
                typed = typed.upper()
            letters[place] = typed
        else:
            letters[place] = ""
    return "".join(letters)


# The kinds of noise, in the order in which a line gets them.
CHANGES: Mapping[str, Callable[[str, Random], str]] = {
    "no_final_stop": lambda text, _: _FINAL_STOP.sub("", text),
    "typos": _with_typos,
    "upper": lambda text, _: _capitalised(text, _WORD),
    "title": lambda text, _: _capitalised(text, _INITIAL),
}
