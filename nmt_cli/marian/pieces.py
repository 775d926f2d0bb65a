"""The vocabulary of a Marian model: pieces of a SentencePiece model, whose ids are in a list of their own.

The list holds the pieces of both languages, so that one matrix serves both, while each has its own SentencePiece model.
A piece that is not in the list is unknown. Text is cut as transformers' MarianTokenizer does it, with one exception:
`</s>` and other special symbols in a text are text here.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from nmt_cli.data.vocabulary import SPACE, Listed
from nmt_cli.interfaces import EOS, UNK

KIND = "marian"
_LANGUAGE_CODE = re.compile(">>.*?<<", re.DOTALL)


class MarianPieces(Listed):
    """Pieces of the SentencePiece model `model` with the ids of their places in `pieces`.

    A text may begin with a code such as `>>fra<<`, which names the target language and is one piece.
    """

    kind = KIND

    def __init__(self, pieces: Sequence[str], model: bytes) -> None:
        import sentencepiece

        super().__init__(pieces)
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)  # unlike the constructor, it refuses an empty one

    def encode(self, text: str) -> list[int]:
        code = _LANGUAGE_CODE.match(text)
        codes = [code[0]] if code else []
        pieces = self._processor.encode(text[len("".join(codes)) :], out_type=str)
        return [self._ids.get(piece, UNK) for piece in codes + pieces]

    def decode(self, ids: Sequence[int]) -> str:
        pieces = [self._pieces[i] for i in self._checked(ids) if i == UNK or i > EOS]
        return str(self._processor.decode_pieces(pieces)).replace(SPACE, " ").strip()

    @cached_property
    def texts(self) -> list[str]:
        is_byte, id_of = self._processor.is_byte, self._processor.piece_to_id
        return ["" if i <= EOS or is_byte(id_of(piece)) else piece for i, piece in enumerate(self._pieces)]

    def serialise(self) -> bytes:
        content = {"kind": self.kind, "pieces": self._pieces, "model": base64.b64encode(self.model).decode()}
        return (json.dumps(content, ensure_ascii=False, indent=0) + "\n").encode()

    @classmethod
    def restored(cls, content: bytes) -> MarianPieces:
        """Return the vocabulary that `serialise` wrote; any error of damaged JSON may be raised."""
        fields = json.loads(content)
        return cls(fields["pieces"], base64.b64decode(fields["model"], validate=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._pieces, self.model)
