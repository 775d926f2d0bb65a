"""Moses' punctuation normalisation and tokenisation, by sacremoses, and detokenisation.

sacremoses is a port; it differs from Moses' Perl scripts on few lines (a sentence-final number such as `26.`).
"""

from __future__ import annotations

from typing import Any


class Moses:
    """Normaliser, tokeniser and detokeniser of one language.

    Args:
        language: two letters; languages without rules of their own use those of English.
        escape: write `&apos;`, `&quot;`, `&amp;`, `&#124;`, `&lt;`, `&gt;`, `&#91;`, `&#93;` for the characters, as
            Moses' scripts do by default.
    """

    def __init__(self, language: str, escape: bool = False) -> None:
        import sacremoses

        from nmt_cli.data.moses_rules import Normaliser, Tokeniser

        self._language, self._escape = language, escape
        self._normaliser = Normaliser(language)
        self._tokeniser = Tokeniser(language, escape)
        self._detokeniser = sacremoses.MosesDetokenizer(lang=language)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._language, self._escape)

    def tokenise(self, line: str) -> str:
        """Return the normalised tokens of the line, separated by single spaces."""
        return self._tokeniser.tokenise(self._normaliser.normalise(line))

    def detokenise(self, tokens: str) -> str:
        """Return the text of tokens separated by spaces."""
        return str(self._detokeniser.detokenize(tokens.split(" "), unescape=self._escape))
