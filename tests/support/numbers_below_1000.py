"""The names of the numbers 0 to 999 in English and German, for tests without num2words."""

from __future__ import annotations

from collections.abc import Sequence

_ENGLISH = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen "
    "eighteen nineteen",
    "twenty thirty forty fifty sixty seventy eighty ninety",
)
_GERMAN = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn "
    "fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn",
    "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
)


def name(n: int, language: str) -> str:
    """Return the name of `n` in the language "en" or "de"."""
    small, tens = (words.split() for words in (_ENGLISH if language == "en" else _GERMAN))
    return (english if language == "en" else german)(n, small, tens)


def english(n: int, small: Sequence[str], tens: Sequence[str]) -> str:
    """Return the English name, without "and"."""
    if n >= 100:
        return f"{small[n // 100]} hundred" + (
            f" {english(n % 100, small, tens)}" if n % 100 else ""
        )
    if n < 20:
        return small[n]
    return tens[n // 10 - 2] + (f"-{small[n % 10]}" if n % 10 else "")


def german(n: int, small: Sequence[str], tens: Sequence[str]) -> str:
    """Return the German name, in which units come before tens."""
    if n >= 100:
        hundreds = small[n // 100].removesuffix("s" if n < 200 else "")
        return f"{hundreds}hundert" + (german(n % 100, small, tens) if n % 100 else "")
    if n < 20:
        return small[n]
    return (
        f"{small[n % 10].removesuffix('s' if n % 10 == 1 else '')}und" if n % 10 else ""
    ) + tens[n // 10 - 2]
