"""The names of numbers in two languages: a parallel corpus that needs no download.

It needs the package num2words: pip install num2words.

    python recipes/number_names.py DIR en de [TRAIN VALID TEST]

writes DIR/{train,valid,test}.{en,de}. German numbers are one word, in which units and tens swap: 42
is "zweiundvierzig". Validation and test numbers do not occur in training.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

from report import user_errors

from nmt_cli.errors import UsageError


def name(n: int, language: str) -> str:
    """Return the name of `n`. English names are without commas and "and"."""
    try:
        from num2words import num2words
    except ModuleNotFoundError:
        raise UsageError("number names need the package num2words: pip install num2words") from None
    try:
        words = str(num2words(n, lang=language))
    except NotImplementedError:
        raise UsageError(f"num2words has no number names in {language!r}") from None
    if language == "de":
        return words.replace("einstausend", "eintausend")  # num2words writes einhunderteinstausend
    if language == "en":
        return words.replace(",", "").replace(" and ", " ")
    return words


def draw(count: int, seed: int, digits: int = 6) -> list[int]:
    """Return `count` different numbers of at most `digits` digits, in random order.

    They are the same for the same seed. All numbers with at most two significant digits are among
    them. Other numbers are drawn evenly from each length.
    """
    drawn: set[int] = set()
    for zeros in range(digits):
        drawn.update(n * 10**zeros for n in range(100) if n * 10**zeros < 10**digits)
    if not len(drawn) <= count <= 10**digits:
        raise UsageError(
            f"cannot draw {count} numbers of up to {digits} digits: the limits are {len(drawn)} "
            f"and {10**digits}"
        )
    generator = random.Random(seed)
    for length in range(1, digits + 1):
        # Numbers of one digit are all drawn: 0 is among them.
        fresh = [n for n in range(10 ** (length - 1), 10**length) if n not in drawn]
        share = (count - len(drawn)) // (digits + 1 - length)
        drawn.update(generator.sample(fresh, min(share, len(fresh))))
    shuffled = sorted(drawn)
    generator.shuffle(shuffled)
    return shuffled


def significant_digits(n: int) -> int:
    """Return the number of digits without the zeros at the end: 2 for 42000, 0 for 0."""
    return len(str(n).rstrip("0"))


# How often a number occurs in the training text, by its significant digits: once if it has more.
_REPEATS = {0: 300, 1: 60, 2: 8}


def split(numbers: Sequence[int], valid: int, test: int) -> dict[str, list[int]]:
    """Divide `numbers` into "train", "valid" and "test" without overlap.

    Numbers below 100 and of one significant digit are for training: others are composed of them.
    Round numbers are rare, and repeated in training.
    """
    held_out = [n for n in numbers if n >= 100 and significant_digits(n) > 1][: valid + test]
    hidden = set(held_out)
    train = []
    for n in numbers:
        if n not in hidden:
            train += [n] * _REPEATS.get(significant_digits(n), 1)
    return {"train": train, "valid": held_out[:valid], "test": held_out[valid:]}


def write_corpus(
    out: Path,
    source: str,
    target: str,
    train: int = 20_000,
    valid: int = 500,
    test: int = 1000,
    seed: int = 1,
) -> None:
    """Write OUT/{train,valid,test}.{source,target}, with so many different numbers, one a line."""
    parts = split(draw(train + valid + test, seed), valid, test)
    if len(parts["test"]) < test or source == target:
        raise UsageError(
            f"{train + valid + test} numbers are too few to hold out {valid + test}, or the "
            "languages are one"
        )
    texts = {}
    for part, numbers in parts.items():
        for language in (source, target):
            lines = [f"{name(n, language)}\n" for n in numbers]
            texts[f"{part}.{language}"] = "".join(lines)
    out.mkdir(parents=True, exist_ok=True)
    for file_name, text in texts.items():
        (out / file_name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    with user_errors():
        if len(sys.argv) not in (4, 7):
            raise UsageError("usage: number_names.py DIR SOURCE TARGET [TRAIN VALID TEST]")
        write_corpus(Path(sys.argv[1]), sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
