"""Moses' punctuation normalisation and tokenisation, by sacremoses, and the way back.

sacremoses is a port; it differs from Moses' Perl scripts on few lines (a sentence-final number such as `26.`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Moses:
    """One language's normaliser, tokeniser and detokeniser.

    Args:
        language: two letters; Moses' rules for English serve where a language has none.
        escape: write `&apos;`, `&quot;`, `&amp;`, `&#124;`, `&lt;`, `&gt;`, `&#91;`, `&#93;` for the characters, as
            Moses' scripts do unless told otherwise; needed only to fit text that was tokenised so.
    """

    language: str
    escape: bool = False
    _normaliser: Any = field(init=False, repr=False)
    _tokeniser: Any = field(init=False, repr=False)
    _detokeniser: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        import sacremoses

        self._normaliser = sacremoses.MosesPunctNormalizer(lang=self.language)
        self._tokeniser = sacremoses.MosesTokenizer(lang=self.language)
        self._detokeniser = sacremoses.MosesDetokenizer(lang=self.language)

    def tokenise(self, line: str) -> str:
        """The line's normalised tokens, one space between two."""
        normalised = self._normaliser.normalize(line)
        return str(self._tokeniser.tokenize(normalised, return_str=True, escape=self.escape))

    def detokenise(self, tokens: str) -> str:
        """The text of tokens that stand between spaces."""
        return str(self._detokeniser.detokenize(tokens.split(" "), unescape=self.escape))
