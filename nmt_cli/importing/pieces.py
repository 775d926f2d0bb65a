"""Vocabularies of other toolkits: a list of pieces, and what splits text into them.

That is a SentencePiece model or the merges of subword-nmt. A piece that is not in the list is unknown. A text cannot
have special symbols: `</s>` in it is text.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Self

from nmt_cli.data.vocabulary import SPACE, UNKNOWN_TEXT, Listed
from nmt_cli.errors import DataError
from nmt_cli.interfaces import EOS, UNK, Prefix

JOINER = "@@"  # at the end of a piece that the next one continues
_LARGEST_CACHE = 1 << 18


class ListedPieces(Listed):
    """Pieces of the SentencePiece model `model` with the ids of their places in `pieces`."""

    kind = "listed"

    def __init__(self, pieces: Sequence[str], model: bytes) -> None:
        import sentencepiece

        super().__init__(pieces)
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)  # unlike the constructor, it refuses an empty one

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(piece, UNK) for piece in self._processor.encode(text, out_type=str)]

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
    def restored(cls, content: bytes) -> Self:
        """Return the vocabulary that `serialise` wrote; any error of damaged JSON may be raised."""
        fields = json.loads(content)
        return cls(fields["pieces"], base64.b64decode(fields["model"], validate=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._pieces, self.model)


class MergedPieces(Listed):
    """Pieces of words between spaces, by the merges of subword-nmt (Sennrich et al. 2016), as in `lo@@ wer`.

    Args:
        merges: a file of codes, as `subword-nmt learn-bpe` writes it, in version 0.2.
    """

    kind = "subword_nmt"

    def __init__(self, pieces: Sequence[str], merges: str) -> None:
        super().__init__(pieces)
        self.merges = merges
        version, *lines = merges.rstrip("\n").split("\n")
        pairs = [tuple(line.split(" ")) for line in lines]
        if version != "#version: 0.2" or any(len(pair) != 2 for pair in pairs):
            raise DataError("expected the codes of subword-nmt: the line `#version: 0.2`, then lines of two symbols")
        self._ranks = {pair: rank for rank, pair in reversed(list(enumerate(pairs)))}
        self._split = lru_cache(_LARGEST_CACHE)(self._merged)

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(piece, UNK) for word in text.split(" ") if word for piece in self._split(word)]

    def _merged(self, word: str) -> list[str]:
        """Return the pieces of a word: again and again, the pair of symbols that was learned first is merged."""
        symbols = [*word[:-1], word[-1] + "</w>"]
        while found := self._ranks.keys() & set(pairwise(symbols)):
            first = min(found, key=self._ranks.__getitem__)
            merged: list[str] = []
            for symbol in symbols:
                if merged and (merged[-1], symbol) == first:
                    merged[-1] += symbol
                else:
                    merged.append(symbol)
            symbols = merged
        return [*(symbol + JOINER for symbol in symbols[:-1]), symbols[-1].removesuffix("</w>")]

    def decode(self, ids: Sequence[int]) -> str:
        shown = (i for i in self._checked(ids) if i == UNK or i > EOS)
        text = " ".join(UNKNOWN_TEXT.strip() if i == UNK else self._pieces[i] for i in shown)
        return re.sub(f"{JOINER}( |$)", "", text)

    @cached_property
    def texts(self) -> list[str]:
        joined = [piece.removesuffix(JOINER) if piece.endswith(JOINER) else piece + SPACE for piece in self._pieces]
        return [*[""] * (EOS + 1), *joined[EOS + 1 :]]

    def encode_prefix(self, text: str) -> Prefix:
        """Return how the ids of a line begin that begins with `text`: with its words, of which the last is whole."""
        return Prefix(self.encode(text), "")

    def serialise(self) -> bytes:
        content = {"kind": self.kind, "pieces": self._pieces, "merges": self.merges}
        return (json.dumps(content, ensure_ascii=False, indent=0) + "\n").encode()

    @classmethod
    def restored(cls, content: bytes) -> Self:
        """Return the vocabulary that `serialise` wrote; any error of damaged JSON may be raised."""
        fields = json.loads(content)
        return cls(fields["pieces"], fields["merges"])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._pieces, self.merges)
