"""The names of numbers in English, German and French, and a parallel corpus of them: real translation, no download.

    python recipes/number_names.py --source en --target de --out DIR

writes DIR/{train,valid,test}.{en,de}. Words fuse in German (42 is "zweiundvierzig"), where units and tens swap; French
counts in twenties and lets "vingt" and "cent" agree. Validation and test numbers do not occur in training.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nmt_cli.errors import NmtError, UsageError, nearest

LARGEST = 999_999_999

_ENGLISH_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_ENGLISH_TENS = ". . twenty thirty forty fifty sixty seventy eighty ninety".split()

_GERMAN_SMALL = (
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
).split()
_GERMAN_TENS = ". . zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()

_FRENCH_SMALL = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit "
    "dix-neuf"
).split()
_FRENCH_TENS = ". . vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt".split()


def _periods(n: int) -> tuple[int, int, int]:
    """Millions, thousands and units of `n`, each below 1000."""
    return n // 1_000_000, n // 1000 % 1000, n % 1000


def english(n: int) -> str:
    """American English without "and": 42315 is "forty-two thousand three hundred fifteen"."""
    names = [_english_below_1000(period) for period in _periods(n)]
    parts = [f"{name} {power}" for name, power in zip(names, ("million", "thousand", ""), strict=True) if name]
    return " ".join(parts).strip() or _ENGLISH_SMALL[0]


def _english_below_1000(n: int) -> str:
    hundreds, rest = divmod(n, 100)
    if rest < 20:
        last = _ENGLISH_SMALL[rest] if rest else ""
    else:
        tens, ones = divmod(rest, 10)
        last = _ENGLISH_TENS[tens] + (f"-{_ENGLISH_SMALL[ones]}" if ones else "")
    return " ".join(filter(None, [f"{_ENGLISH_SMALL[hundreds]} hundred" if hundreds else "", last]))


def german(n: int) -> str:
    """German, one word below a million: 42315 is "zweiundvierzigtausenddreihundertfünfzehn".

    A final one is "eins", before "tausend" it is "ein" (einhunderteintausend), before "Millionen" "eine".
    """
    millions, thousands, units = _periods(n)
    name = ""
    if millions:
        name = _german_below_1000(millions) + ("e" if millions % 100 == 1 else "")
        name += " Million " if millions == 1 else " Millionen "
    if thousands:
        name += f"{_german_below_1000(thousands)}tausend"
    name += _german_below_1000(units) + ("s" if units % 100 == 1 else "")
    return name.strip() or _GERMAN_SMALL[0]


def _german_below_1000(n: int) -> str:
    """The name of `n` at the beginning of a longer one; "" for 0."""
    hundreds, rest = divmod(n, 100)
    word = f"{_GERMAN_SMALL[hundreds]}hundert" if hundreds else ""
    if rest < 20:
        return word + (_GERMAN_SMALL[rest] if rest else "")
    tens, ones = divmod(rest, 10)
    return word + (f"{_GERMAN_SMALL[ones]}und" if ones else "") + _GERMAN_TENS[tens]


def french(n: int) -> str:
    """French as in France, in its traditional spelling: 97 is "quatre-vingt-dix-sept", 71 "soixante et onze".

    "vingt" and "cent", when multiplied, take an s at the end of the name and before "millions", but not before
    "mille": quatre-vingts, quatre-vingts millions, quatre-vingt mille. "mille" never changes.
    """
    millions, thousands, units = _periods(n)
    parts = [
        f"{_french_below_1000(millions)} {'million' if millions == 1 else 'millions'}" if millions else "",
        f"{_french_below_1000(thousands, plural=False)} mille" if thousands > 1 else "mille" if thousands else "",
        _french_below_1000(units),
    ]
    return " ".join(filter(None, parts)) or _FRENCH_SMALL[0]


def _french_below_1000(n: int, plural: bool = True) -> str:
    hundreds, rest = divmod(n, 100)
    many = "s" if plural and hundreds > 1 and rest == 0 else ""
    hundred = f"{_FRENCH_SMALL[hundreds]} cent{many}" if hundreds > 1 else "cent" if hundreds else ""
    return " ".join(filter(None, [hundred, _french_below_100(rest, plural)]))


def _french_below_100(n: int, plural: bool) -> str:
    if n < 20:
        return _FRENCH_SMALL[n] if n else ""
    tens, ones = divmod(n, 10)
    if tens in (7, 9):  # soixante-dix and quatre-vingt-dix count on to nineteen
        ones += 10
    if ones == 0:
        return _FRENCH_TENS[tens] + ("s" if tens == 8 and plural else "")
    joint = " et " if ones in (1, 11) and tens < 8 else "-"
    return _FRENCH_TENS[tens] + joint + _FRENCH_SMALL[ones]


LANGUAGES: dict[str, Callable[[int], str]] = {"de": german, "en": english, "fr": french}


def name(n: int, language: str) -> str:
    """The name of `n` (0 to `LARGEST`) in `language` ("en", "de" or "fr")."""
    if language not in LANGUAGES:
        raise UsageError(f"there are no number names in {language!r}. {nearest(language, LANGUAGES)}")
    if not 0 <= n <= LARGEST:
        raise UsageError(f"{n} is not a number from 0 to {LARGEST}")
    return LANGUAGES[language](n)


def draw(count: int, seed: int, digits: int = 6) -> list[int]:
    """Draw `count` different numbers of at most `digits` digits, in random order, the same for the same seed.

    All numbers with at most two significant digits are among them. Each length is equally likely while its numbers
    last, so that short numbers are not rare.
    """
    drawn = {n * 10**zeros for zeros in range(digits) for n in range(100) if n * 10**zeros < 10**digits}
    if not len(drawn) <= count <= 10**digits:
        raise UsageError(
            f"cannot draw {count} numbers of up to {digits} digits: the limits are {len(drawn)} and {10**digits}"
        )
    generator = random.Random(seed)
    ranges = [range(0 if length == 1 else 10 ** (length - 1), 10**length) for length in range(1, digits + 1)]
    for position, numbers in enumerate(ranges):
        fresh = [n for n in numbers if n not in drawn]
        share = (count - len(drawn)) // (len(ranges) - position)
        drawn.update(generator.sample(fresh, min(share, len(fresh))))
    shuffled = sorted(drawn)
    generator.shuffle(shuffled)
    return shuffled


def significant_digits(n: int) -> int:
    """Digits without the zeros at the end: 2 for 42000, none for 0."""
    return len(str(n).rstrip("0"))


_REPEATS = {0: 300, 1: 60, 2: 8}
"""How often a number occurs in the training text, by its significant digits; 1 for more of them."""


def split(numbers: Sequence[int], valid: int, test: int) -> dict[str, list[int]]:
    """Divide `numbers` into "train", "valid" and "test", which share none.

    Numbers below 100 and of one significant digit are for training: others are composed of them. Training repeats the
    few round numbers, as real text would.
    """
    held_out = [n for n in numbers if n >= 100 and significant_digits(n) > 1][: valid + test]
    if len(held_out) < valid + test:
        raise UsageError(f"{len(numbers)} numbers are too few to hold out {valid + test}")
    hidden = set(held_out)
    train = [n for n in numbers if n not in hidden for _ in range(_REPEATS.get(significant_digits(n), 1))]
    return {"train": train, "valid": held_out[:valid], "test": held_out[valid:]}


def write_corpus(
    out: Path, source: str, target: str, train: int = 20_000, valid: int = 500, test: int = 1000, seed: int = 1
) -> None:
    """Write OUT/{train,valid,test}.{source,target}, a name a line, with so many different numbers each."""
    if source == target:
        raise UsageError(f"source and target are both {source!r}. Choose two of {', '.join(sorted(LANGUAGES))}.")
    if min(train, valid, test) < 1:
        raise UsageError(f"train, valid and test need at least one number each, not {train}, {valid} and {test}")
    parts = split(draw(train + valid + test, seed), valid, test)
    texts = {
        f"{part}.{language}": "".join(f"{name(n, language)}\n" for n in numbers)
        for part, numbers in parts.items()
        for language in (source, target)
    }
    out.mkdir(parents=True, exist_ok=True)
    for file_name, text in texts.items():
        (out / file_name).write_text(text, encoding="utf-8", newline="\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="recipes/number_names.py",
        description="Write a parallel corpus of number names: train, valid and test, which share no number.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--source", default="en", help="source language: de, en, fr")
    parser.add_argument("--target", default="de", help="target language: de, en, fr")
    parser.add_argument("--train", type=int, default=20_000, help="numbers to train on")
    parser.add_argument("--valid", type=int, default=500, help="numbers for validation")
    parser.add_argument("--test", type=int, default=1000, help="numbers to score")
    parser.add_argument("--seed", type=int, default=1, help="seed of the draw")
    parser.add_argument("--out", type=Path, required=True, help="directory to write")
    try:
        write_corpus(**vars(parser.parse_args(arguments)))
    except (NmtError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, NmtError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
