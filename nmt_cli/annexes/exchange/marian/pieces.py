"""The vocabulary of a Marian model.

The list holds the pieces of both languages, so that one matrix serves both, while each has its own
SentencePiece model. Text is cut as transformers' MarianTokenizer does it, except that special
symbols in it are text here.
"""

from __future__ import annotations

import re

from nmt_cli.annexes.exchange.importing.pieces import ListedPieces
from nmt_cli.interfaces import UNK

_LANGUAGE_CODE = re.compile(">>.*?<<", re.DOTALL)


class MarianPieces(ListedPieces):
    """Pieces of a text that may begin with a code of the target language such as `>>fra<<`."""

    kind = "marian"

    def makes(self, piece: str) -> bool:
        """See `SplitPieces`. A code that does not stand first is text for Marian."""
        return _LANGUAGE_CODE.fullmatch(piece) is not None or super().makes(piece)

    def encode(self, text: str) -> list[int]:
        code = _LANGUAGE_CODE.match(text)
        if code is None:
            return super().encode(text)
        return [self._ids.get(code[0], UNK), *super().encode(text[code.end() :])]
