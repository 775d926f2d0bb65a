"""Preparation of lines for tokenized BLEU: a sequence of named steps.

Moses' scripts, multi-bleu.perl and the `perl -ple` of the authors' script read bytes by default.
Where that shows in a score, the steps here work on UTF-8 bytes too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from nmt_cli.errors import UsageError, nearest

Step = Callable[[str], str]

# `multi-bleu.perl -lc` lower-cases bytes: `Ä` stays.
_ASCII_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_DOUBLE_QUOTES = str.maketrans(dict.fromkeys("„“”‟«»", '"'))
_COMPOUND = re.compile(rb"(\S)-(\S)")
_PRIVATE_USE = 0xF0000
# Spaces to str.split(), but parts of tokens to Perl (U+0085, the no-break space and others) become
# private characters.
_HIDDEN_SPACES = {
    code: chr(_PRIVATE_USE + code)
    for code in range(0x3001)
    if chr(code).isspace() and chr(code) not in " \t\n\r\f\v"
}


def split_compounds(line: str) -> str:
    """Turn `rich-text` into `rich ##AT##-##AT## text`.

    This is done once over the bytes of the line, without overlaps. So the middle of `a-b-c` stays
    joined to `c`. The middle of `a-é-b`, two bytes long, does not.
    """
    return _COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()


def moses_tokenizer(language: str) -> Step:
    """Return Moses' `tokenizer.perl -l LANGUAGE`, with its escapes (`&apos;`), by sacremoses.

    One rule is added that sacremoses lacks: Moses always splits the full stop off the last word of
    a line, even after an abbreviation or a number (`am 26.`).
    """
    from sacremoses import MosesTokenizer

    class Tokenizer(MosesTokenizer):  # type: ignore[misc]  # sacremoses has no types
        def handles_nonbreaking_prefixes(self, text: str) -> str:
            words = str(super().handles_nonbreaking_prefixes(text)).split()
            if words and len(words[-1]) > 1 and words[-1].endswith("."):
                words[-1:] = [words[-1][:-1], "."]
            return " ".join(words)

    tokenizer = Tokenizer(language)
    return lambda line: str(tokenizer.tokenize(line, return_str=True))


def punctuation_replacer(language: str) -> Step:
    """Return Moses' `replace-unicode-punctuation.perl`, by sacremoses, which leaves `„`."""
    from sacremoses import MosesPunctNormalizer

    return MosesPunctNormalizer().replace_unicode_punct  # type: ignore[no-any-return]


def languages() -> set[str]:
    """Return the codes of the languages that the Moses tokenizer has rules for."""
    from sacremoses.corpus import NonbreakingPrefixes

    return set(NonbreakingPrefixes().available_langs.values())


def check_language(language: str) -> None:
    """Raise UsageError if the Moses tokenizer has no rules for `language`."""
    if language not in languages():
        raise UsageError(
            f"the Moses tokenizer has no rules for the language {language!r}. "
            f"{nearest(language, languages())}"
        )


STEPS: dict[str, Callable[[str], Step]] = {
    "lower": lambda language: str.lower,
    "ascii-lower": lambda language: lambda line: line.translate(_ASCII_LOWER),
    "punctuation": punctuation_replacer,
    "quotes": lambda language: lambda line: line.translate(_DOUBLE_QUOTES),
    "moses": functools.cache(moses_tokenizer),
    "compounds": lambda language: split_compounds,
    "ascii-spaces": lambda language: lambda line: line.translate(_HIDDEN_SPACES),
}
"""Every step by name. Given the language, it returns the function that is applied to each line."""


_WITHOUT_SPACES = {
    "zh": "zh zho cmn yue lzh".split(),
    "char": "ja jpn th tha lo lao km khm my mya bo bod dz dzo".split(),
}
"""Languages without spaces between words, by the tokenization of sacreBLEU for them."""


def tokenization_of(language: str) -> str:
    """Return sacreBLEU's tokenization for BLEU of a language, such as `zh` or `zh_TW`."""
    code = language.lower().replace("_", "-").partition("-")[0]
    for tokenization, languages in _WITHOUT_SPACES.items():
        if code in languages:
            return tokenization
    return "13a"
