"""Vocabularies of other toolkits: a list of pieces, and what splits text into them.

That is a SentencePiece model or the merges of subword-nmt. A piece that is not in the list is
unknown. A text cannot have special symbols: `</s>` in it is text. A list may have entries that its
splitter never makes, such as the tag <2de> that was put before lines after they had been split.
Words of a line that are such entries are kept whole.
"""

from __future__ import annotations

import base64
import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import groupby, pairwise
from typing import Any, Self

from nmt_cli.data.vocabulary import SPACE, UNKNOWN_TEXT, Listed
from nmt_cli.errors import DataError
from nmt_cli.interfaces import EOS, UNK

JOINER = "@@"  # at the end of a piece that the next one continues
_LARGEST_CACHE = 1 << 18
# ours, fairseq's and OpenNMT-py's, to fill a table.
_FILLER = re.compile(r" |^(madeupword|averyunlikelytoken)\d+$")


class SplitPieces(Listed):
    """A list of pieces with a splitter, and the entries `whole` that this does not make."""

    lists_symbols = True

    def __init__(self, pieces: Sequence[str], whole: Iterable[str]) -> None:
        super().__init__(pieces)
        self.whole = frozenset(whole)

    @abstractmethod
    def makes(self, piece: str) -> bool:
        """Return whether the splitter makes `piece` of some text."""

    @abstractmethod
    def splitter(self) -> dict[str, str]:
        """Return the argument of the class that has the splitter, by its name."""

    def serialise(self) -> bytes:
        content = {"kind": self.kind, "pieces": self._pieces, **self.splitter()}
        if self.whole:
            content["whole"] = sorted(self.whole)
        return (json.dumps(content, ensure_ascii=False, indent=0) + "\n").encode()

    @classmethod
    def restored(cls, content: bytes) -> Self:
        """Return the vocabulary that `serialise` wrote; any error of damaged JSON may be raised."""
        fields = json.loads(content)
        del fields["kind"]
        return cls(**fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.restored, (self.serialise(),)


def keep_whole(vocabularies: Sequence[SplitPieces]) -> list[str]:
    """Keep the entries whole that no vocabulary makes, of which one may list the pieces of all, and
    return them.
    """
    for vocabulary in vocabularies:
        vocabulary.whole = frozenset(
            piece
            for piece in vocabulary.pieces(range(EOS + 1, len(vocabulary)))
            if not _FILLER.search(piece) and not any(other.makes(piece) for other in vocabularies)
        )
    return sorted(frozenset().union(*(vocabulary.whole for vocabulary in vocabularies)))


class ListedPieces(SplitPieces):
    """Pieces of the SentencePiece model `model` with the ids of their places in `pieces`."""

    kind = "listed"

    def __init__(self, pieces: Sequence[str], model: bytes, whole: Iterable[str] = ()) -> None:
        import sentencepiece

        super().__init__(pieces, whole)
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        # Unlike the constructor, it refuses an empty one.
        self._processor.LoadFromSerializedProto(model)

    @classmethod
    def restored(cls, content: bytes) -> Self:
        fields = json.loads(content)
        return cls(
            fields["pieces"],
            base64.b64decode(fields["model"], validate=True),
            fields.get("whole", ()),
        )

    def splitter(self) -> dict[str, str]:
        return {"model": base64.b64encode(self.model).decode()}

    def makes(self, piece: str) -> bool:
        """See `SplitPieces`. Unknown characters are pieces, too, which the model does not list."""
        number = self._processor.piece_to_id(piece)
        listed = not (self._processor.is_unknown(number) or self._processor.is_control(number))
        return listed or self._processor.encode(piece, out_type=str)[-1:] == [piece]

    def encode(self, text: str) -> list[int]:
        ids = []
        for is_whole, words in groupby(text.split(" "), self.whole.__contains__):
            pieces = list(words)
            if not is_whole:
                pieces = self._processor.encode(" ".join(pieces), out_type=str)
            ids += [self._ids.get(piece, UNK) for piece in pieces]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        pieces = [self._word(self._pieces[i]) for i in self._checked(ids) if i == UNK or i > EOS]
        return str(self._processor.decode_pieces(pieces)).replace(SPACE, " ").strip()

    def _word(self, piece: str) -> str:
        return SPACE + piece if piece in self.whole else piece

    @cached_property
    def texts(self) -> list[str]:
        is_byte, id_of = self._processor.is_byte, self._processor.piece_to_id
        return [
            "" if i <= EOS or is_byte(id_of(piece)) else self._word(piece)
            for i, piece in enumerate(self._pieces)
        ]


class MergedPieces(SplitPieces):
    """Pieces of words between spaces, by the merges of subword-nmt (Sennrich et al. 2016), as in
    `lo@@ wer`.

    Args:
        merges: a file of codes, as `subword-nmt learn-bpe` writes it, in version 0.2.
    """

    kind = "subword_nmt"
    spaces_follow = True

    def __init__(self, pieces: Sequence[str], merges: str, whole: Iterable[str] = ()) -> None:
        super().__init__(pieces, whole)
        self.merges = merges
        version, *lines = merges.rstrip("\n").split("\n")
        pairs = [tuple(line.split(" ")) for line in lines]
        if version != "#version: 0.2" or any(len(pair) != 2 for pair in pairs):
            raise DataError(
                "expected the codes of subword-nmt: the line `#version: 0.2`, then lines of two "
                "symbols"
            )
        self._ranks = {pair: rank for rank, pair in reversed(list(enumerate(pairs)))}
        self._products = {first + second for first, second in pairs}
        self._split = lru_cache(_LARGEST_CACHE)(self._merged)

    def makes(self, piece: str) -> bool:
        """See `SplitPieces`."""
        symbol = piece.removesuffix(JOINER) if piece.endswith(JOINER) else piece + "</w>"
        return len(symbol.removesuffix("</w>")) < 2 or symbol in self._products

    def encode(self, text: str) -> list[int]:
        ids = []
        for word in text.split(" "):
            if word:
                pieces = [word] if word in self.whole else self._split(word)
                ids += [self._ids.get(piece, UNK) for piece in pieces]
        return ids

    def _merged(self, word: str) -> list[str]:
        """Return the pieces of a word: again and again, the pair of symbols that was learned first
        is merged.
        """
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
        joined = [
            piece.removesuffix(JOINER) if piece.endswith(JOINER) else piece + SPACE
            for piece in self._pieces
        ]
        return [*[""] * (EOS + 1), *joined[EOS + 1 :]]

    def splitter(self) -> dict[str, str]:
        return {"merges": self.merges}
