"""What is done to a line before tokenised BLEU counts its tokens: one named step after the other, each done once.

Moses' scripts read bytes unless told otherwise, and so do multi-bleu.perl and the `perl -ple` of the authors' script.
Where that shows in a score, the steps here work on UTF-8 bytes too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from nmt_cli.errors import UsageError, nearest

Step = Callable[[str], str]

_ASCII_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_DOUBLE_QUOTES = str.maketrans(dict.fromkeys("„“”‟«»", '"'))
_COMPOUND = re.compile(rb"(\S)-(\S)")
_PRIVATE_USE = 0xF0000
# All that Perl takes for a part of a token but str.split() for a space: U+0085, the no-break space and their like.
_HIDDEN_SPACES = {
    code: chr(_PRIVATE_USE + code) for code in range(0x3001) if chr(code).isspace() and chr(code) not in " \t\n\r\f\v"
}


def split_compounds(line: str) -> str:
    """`rich-text` becomes `rich ##AT##-##AT## text`: once over the bytes of the line, without overlaps.

    So the middle part of `a-b-c` stays joined to `c`, but that of `a-é-b`, two bytes long, is set free.
    """
    return _COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()


def lower_ascii(line: str) -> str:
    """A to Z in lower case and nothing else, which is what `multi-bleu.perl -lc` does to bytes: `Ä` stays."""
    return line.translate(_ASCII_LOWER)


def normalise_quotes(line: str) -> str:
    """Every double quote of Unicode as `"`."""
    return line.translate(_DOUBLE_QUOTES)


def keep_inner_spaces(line: str) -> str:
    """Spaces beyond ASCII as private characters, one for one, so that `str.split()` leaves them inside tokens."""
    return line.translate(_HIDDEN_SPACES)


def moses_tokeniser(language: str) -> Step:
    """Moses' `tokenizer.perl -l LANGUAGE`, with its escapes (`&apos;`), by sacremoses.

    One rule is added that sacremoses lacks: Moses always splits the full stop off a line's last word, even after an
    abbreviation or a number (`am 26.`).
    """
    from sacremoses import MosesTokenizer

    class Tokeniser(MosesTokenizer):  # type: ignore[misc]  # sacremoses has no types
        def handles_nonbreaking_prefixes(self, text: str) -> str:
            words = str(super().handles_nonbreaking_prefixes(text)).split()
            if words and len(words[-1]) > 1 and words[-1].endswith("."):
                words[-1:] = [words[-1][:-1], "."]
            return " ".join(words)

    tokeniser = Tokeniser(language)
    return lambda line: str(tokeniser.tokenize(line, return_str=True))


def unicode_punctuation_replacer() -> Step:
    """Moses' `replace-unicode-punctuation.perl`, by sacremoses. It knows `“`, `”` and `’` but not the German `„`."""
    from sacremoses import MosesPunctNormalizer

    replace: Step = MosesPunctNormalizer().replace_unicode_punct
    return replace


def languages() -> set[str]:
    """The languages, as two or three letters, that the Moses tokeniser has rules for."""
    from sacremoses.corpus import NonbreakingPrefixes

    return set(NonbreakingPrefixes().available_langs.values())


def check_language(language: str) -> None:
    """Raises UsageError if the Moses tokeniser has no rules for `language`."""
    if language not in languages():
        raise UsageError(
            f"the Moses tokeniser has no rules for the language {language!r}. {nearest(language, languages())}"
        )


STEPS: dict[str, Callable[[str], Step]] = {
    "lower": lambda language: str.lower,
    "ascii-lower": lambda language: lower_ascii,
    "punctuation": lambda language: unicode_punctuation_replacer(),
    "quotes": lambda language: normalise_quotes,
    "moses": moses_tokeniser,
    "compounds": lambda language: split_compounds,
    "ascii-spaces": lambda language: keep_inner_spaces,
}
"""Every step by name; given the language, it returns the function that is applied to each line."""


class Preparation:
    """Lines after any sequence of steps; what several sequences begin with is done once.

    Args:
        language: of the Moses tokeniser.
    """

    def __init__(self, language: str) -> None:
        self._language = language
        self._steps: dict[str, Step] = {}

    def of(self, lines: Sequence[str]) -> PreparedLines:
        """One file's lines, ready to be prepared."""
        return PreparedLines(lines, self._step)

    def _step(self, name: str) -> Step:
        if name not in self._steps:
            self._steps[name] = STEPS[name](self._language)
        return self._steps[name]


class PreparedLines:
    """One file's lines and, remembered, what the steps made of them."""

    def __init__(self, lines: Sequence[str], step: Callable[[str], Step]) -> None:
        self._step = step
        self._done: dict[tuple[str, ...], list[str]] = {(): list(lines)}

    def __len__(self) -> int:
        return len(self._done[()])

    def after(self, steps: Sequence[str]) -> list[str]:
        """The lines after `steps`, names of `STEPS`, in that order."""
        key = tuple(steps)
        if key not in self._done:
            step: Any = self._step(key[-1])
            self._done[key] = [step(line) for line in self.after(key[:-1])]
        return self._done[key]
