"""Noise of `nmt train --noise`: capitals, typos and missing full stops, so that a model meets them
while it learns.

A tag in angle brackets (`<2de>`) and an escaped character (`&apos;`) stay as they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from random import Random

from nmt_cli.errors import UsageError, nearest, shown

CHARACTERS_PER_TYPO = 20  # an altered line has a typo for each, and at least one
BOTH_SIDES = frozenset({"upper", "title"})
"""A translation keeps the capitals of its source. Typos and missing stops are of the source only.
"""

_KEYS = " qwertyuiop asdfghjkl zxcvbnm йцукенгшщзхъ фывапролджэ ячсмитьбю "
_KEPT = r"(<[^<>\s]+>|&#?\w+;)"
_WORD = re.compile(rf"{_KEPT}|\w+")
_INITIAL = re.compile(rf"{_KEPT}|(?<!\S)[^\w\s<&]*\w")
_LETTER = re.compile(rf"{_KEPT}|[^\W\d_](?=[^\W\d_])")  # before another one
_FINAL_STOP = re.compile(r"(?<=[^\s.])\s*[.。।]$")  # not an ellipsis, nor the whole line


def parsed(text: str) -> dict[str, float]:
    """Return the probability of each kind of noise in `upper=0.05,typos=0.1`, in the order of
    `CHANGES`.

    Raises:
        UsageError: a name is unknown or there twice, a probability is not between 0 and 1, or those
            of upper and title, which exclude each other, are more than 1 together.
    """
    found: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, _, value = map(str.strip, part.partition("="))
        if name not in CHANGES or name in found:
            problem = (
                "is there twice"
                if name in found
                else f"is not a kind of noise. {nearest(name, CHANGES)}"
            )
            raise UsageError(f"--noise: {shown(name)} {problem}")
        if not re.fullmatch(r"\d*\.?\d+", value) or float(value) > 1:
            raise UsageError(
                f"--noise: {name} takes a probability from 0 to 1, such as {name}=0.05, not "
                f"{shown(value)}"
            )
        found[name] = float(value)
    noise = {name: found.get(name, 0.0) for name in CHANGES}
    if noise["upper"] + noise["title"] > 1:
        raise UsageError(
            "--noise: upper and title exclude each other, so their sum must be at most 1"
        )
    return noise


def drawn(noise: Mapping[str, float], random: Random) -> list[str]:
    """Return the kinds of noise that a sentence pair gets."""
    draws = {name: random.random() for name in noise}
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
    return pattern.sub(lambda found: found[0] if found[1] else found[0].upper(), text)


def _with_typos(text: str, random: Random) -> str:
    """Return `text` with letters swapped, dropped, doubled or replaced by one beside it on the
    keyboard.
    """
    if unicodedata.is_normalized("NFD", text) and not unicodedata.is_normalized(
        "NFC", text
    ):  # letters and marks
        return unicodedata.normalize("NFD", _with_typos(unicodedata.normalize("NFC", text), random))
    letters = list(text)
    places = [found.start() for found in _LETTER.finditer(text) if not found[1]]
    typos = max(1, len(text) // CHARACTERS_PER_TYPO)
    for place in random.sample(places, min(typos, len(places))):
        kind, letter = random.randrange(4), letters[place]
        if kind == 0:
            letters[place : place + 2] = reversed(letters[place : place + 2])
        elif kind == 1:
            letters[place] *= 2
        elif kind == 2 and (key := _KEYS.find(letter.lower())) > 0:
            near = random.choice(_KEYS[key - 1 : key + 2 : 2].strip())
            letters[place] = near.upper() if letter.isupper() else near
        else:
            letters[place] = ""
    return "".join(letters)


CHANGES: Mapping[str, Callable[[str, Random], str]] = {
    "no_final_stop": lambda text, _: _FINAL_STOP.sub("", text),
    "typos": _with_typos,
    "upper": lambda text, _: _capitalised(text, _WORD),
    "title": lambda text, _: _capitalised(text, _INITIAL),
}
"""The kinds of noise, in the order in which a line gets them."""
