"""The names of numbers in English, German and French, and a parallel corpus of them: real translation, no download.

Words fuse in German (42 is "zweiundvierzig") and units and tens swap; French counts in twenties and lets "vingt" and
"cent" agree. The held-out numbers occur nowhere in the training text, so a score on them measures what was understood,
not what was remembered.

    recipes/number_names.py --source en --target de --out DIR

writes DIR/train.en, DIR/train.de, and the same for valid and test.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nmt_cli.errors import NmtError, UsageError, nearest

LARGEST = 999_999_999
"""The largest number that has a name here."""

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
    if n == 0:
        return _ENGLISH_SMALL[0]
    millions, thousands, units = _periods(n)
    parts = [
        f"{_english_below_1000(millions)} million" if millions else "",
        f"{_english_below_1000(thousands)} thousand" if thousands else "",
        _english_below_1000(units),
    ]
    return " ".join(filter(None, parts))


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
    if n == 0:
        return _GERMAN_SMALL[0]
    millions, thousands, units = _periods(n)
    word = f"{_german_below_1000(thousands)}tausend" if thousands else ""
    if units:
        word += _german_below_1000(units) + ("s" if units % 100 == 1 else "")
    return " ".join(filter(None, [_german_millions(millions), word]))


def _german_millions(millions: int) -> str:
    if millions == 0:
        return ""
    count = _german_below_1000(millions) + ("e" if millions % 100 == 1 else "")
    return f"{count} {'Million' if millions == 1 else 'Millionen'}"


def _german_below_1000(n: int) -> str:
    """The name of `n` as the beginning of a longer one; "" for 0."""
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
    if n == 0:
        return _FRENCH_SMALL[0]
    millions, thousands, units = _periods(n)
    parts = [
        f"{_french_below_1000(millions)} {'million' if millions == 1 else 'millions'}" if millions else "",
        f"{_french_below_1000(thousands, plural=False)} mille" if thousands > 1 else "mille" if thousands else "",
        _french_below_1000(units),
    ]
    return " ".join(filter(None, parts))


def _french_below_1000(n: int, plural: bool = True) -> str:
    hundreds, rest = divmod(n, 100)
    many = "s" if plural and hundreds > 1 and rest == 0 else ""
    hundred = f"{_FRENCH_SMALL[hundreds]} cent{many}" if hundreds > 1 else "cent" if hundreds else ""
    return " ".join(filter(None, [hundred, _french_below_100(rest, plural)]))


def _french_below_100(n: int, plural: bool) -> str:
    if n < 20:
        return _FRENCH_SMALL[n] if n else ""
    tens, ones = divmod(n, 10)
    if tens in (7, 9):  # soixante-dix and quatre-vingt-dix go on to count to nineteen
        ones += 10
    if ones == 0:
        return _FRENCH_TENS[tens] + ("s" if tens == 8 and plural else "")
    joint = " et " if ones in (1, 11) and tens < 8 else "-"
    return _FRENCH_TENS[tens] + joint + _FRENCH_SMALL[ones]


LANGUAGES: dict[str, Callable[[int], str]] = {"de": german, "en": english, "fr": french}
"""Language codes and the function that names a number in that language."""


def name(n: int, language: str) -> str:
    """The name of `n` (0 to `LARGEST`) in `language` ("en", "de" or "fr").

    Raises:
        UsageError: the language is unknown, or the number out of range.
    """
    if language not in LANGUAGES:
        raise UsageError(f"there are no number names in {language!r}. {nearest(language, LANGUAGES)}")
    if not 0 <= n <= LARGEST:
        raise UsageError(f"{n} has no name here: expected a number from 0 to {LARGEST}.")
    return LANGUAGES[language](n)


def draw(count: int, seed: int, digits: int = 6) -> list[int]:
    """`count` different numbers of at most `digits` digits, in random order, the same for the same arguments.

    All round numbers are among them (two significant digits at most). Each length is equally likely while its numbers
    last, so that short numbers are not drowned by long ones.

    Raises:
        UsageError: there are not so many numbers, or more round ones.
    """
    drawn = {n * 10**zeros for zeros in range(digits) for n in range(100) if n * 10**zeros < 10**digits}
    if not len(drawn) <= count <= 10**digits:
        raise UsageError(f"cannot draw {count} numbers: of {digits} digits at most, from {len(drawn)} to {10**digits}.")
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
"""Significant digits of a number, and how often it stands in the training text. Nothing else is composed of zero."""


def split(numbers: Sequence[int], valid: int, test: int) -> dict[str, list[int]]:
    """Cuts `numbers` into "train", "valid" and "test", which share no number.

    Numbers below 100 and of one significant digit always go to training: there is nothing that they could be composed
    of. Round numbers are few, so training repeats them, as real text would.
    """
    held_out = [n for n in numbers if n >= 100 and significant_digits(n) > 1][: valid + test]
    if len(held_out) < valid + test:
        raise UsageError(f"{len(numbers)} numbers are too few to hold out {valid + test}. Ask for more.")
    hidden = set(held_out)
    train = [n for n in numbers if n not in hidden for _ in range(_REPEATS.get(significant_digits(n), 1))]
    return {"train": train, "valid": held_out[:valid], "test": held_out[valid:]}


def write_corpus(
    out: Path, source: str, target: str, train: int = 20_000, valid: int = 500, test: int = 1000, seed: int = 1
) -> None:
    """Writes the parallel corpus: OUT/{train,valid,test}.{source,target}, one name a line.

    Args:
        train, valid, test: how many different numbers each has.

    Raises:
        UsageError: a language is unknown, both are the same, or the counts do not fit.
    """
    if source == target:
        raise UsageError(f"source and target are both {source!r}. Choose two of {', '.join(sorted(LANGUAGES))}.")
    if min(train, valid, test) < 1:
        raise UsageError(f"train, valid and test need at least one sentence each, not {train}, {valid} and {test}.")
    parts = split(draw(train + valid + test, seed), valid, test)
    texts = {
        f"{part}.{language}": "".join(f"{name(n, language)}\n" for n in numbers)
        for part, numbers in parts.items()
        for language in (source, target)
    }
    out.mkdir(parents=True, exist_ok=True)
    for file_name, text in texts.items():
        (out / file_name).write_text(text, encoding="utf-8", newline="\n")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recipes/number_names.py",
        description="Writes a parallel corpus of number names: train, valid and test, which share no number.",
    )
    codes = ", ".join(sorted(LANGUAGES))
    parser.add_argument("--source", default="en", help=f"source language: {codes} (default en)")
    parser.add_argument("--target", default="de", help=f"target language: {codes} (default de)")
    parser.add_argument("--train", type=int, default=20_000, help="different numbers to train on (default 20000)")
    parser.add_argument("--valid", type=int, default=500, help="held-out numbers for validation (default 500)")
    parser.add_argument("--test", type=int, default=1000, help="held-out numbers for the final score (default 1000)")
    parser.add_argument("--seed", type=int, default=1, help="which numbers are drawn (default 1)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = _arguments().parse_args(arguments)
    try:
        write_corpus(
            options.out, options.source, options.target, options.train, options.valid, options.test, options.seed
        )
    except (NmtError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, NmtError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
