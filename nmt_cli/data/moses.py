"""Moses' punctuation normalisation and tokenisation, by sacremoses, and detokenisation.

sacremoses is a port; it differs from Moses' Perl scripts on few lines (a sentence-final number such as `26.`).
"""

from __future__ import annotations


class Moses:
    """Normaliser, tokeniser and detokeniser of one language.

    Args:
        language: two letters; languages without rules of their own use those of English.
        escape: write `&apos;`, `&quot;`, `&amp;`, `&#124;`, `&lt;`, `&gt;`, `&#91;`, `&#93;` for the characters, as
            Moses' scripts do by default.
    """

    def __init__(self, language: str, escape: bool = False) -> None:
        import sacremoses

        self._escape = escape
        self._normaliser = sacremoses.MosesPunctNormalizer(lang=language)
        self._tokeniser = sacremoses.MosesTokenizer(lang=language)
        self._detokeniser = sacremoses.MosesDetokenizer(lang=language)

    def tokenise(self, line: str) -> str:
        """Return the normalised tokens of the line, separated by single spaces."""
        normalised = self._normaliser.normalize(line)
        return str(self._tokeniser.tokenize(normalised, return_str=True, escape=self._escape))

    def detokenise(self, tokens: str) -> str:
        """Return the text of tokens separated by spaces."""
        return str(self._detokeniser.detokenize(tokens.split(" "), unescape=self._escape))
