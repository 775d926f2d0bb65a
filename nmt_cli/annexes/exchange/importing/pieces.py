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
_END_OF_WORD = "</w>"  # at the end of the last symbol of a word, in subword-nmt's codes
_LARGEST_CACHE = 1 << 18
# Entries that fill a table: ours, fairseq's and OpenNMT-py's.
_FILLER = re.compile(r" |^(madeupword|averyunlikelytoken)\d+$")


class SplitPieces(Listed):
    """A list of pieces with a splitter, and the entries `whole` that the splitter does not make."""

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
        """Return the vocabulary that `serialise` wrote. Damaged JSON may raise any error."""
        fields = json.loads(content)
        del fields["kind"]
        return cls(**fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.restored, (self.serialise(),)


def keep_whole(vocabularies: Sequence[SplitPieces]) -> list[str]:
    """Keep the entries whole that none of `vocabularies` makes, and return them.

    A vocabulary may list the pieces of both languages, of which its splitter makes one.
    """
    all_whole: set[str] = set()
    for vocabulary in vocabularies:
        whole = set()
        for piece in vocabulary.pieces(range(EOS + 1, len(vocabulary))):
            if _FILLER.search(piece):
                continue
            if not any(other.makes(piece) for other in vocabularies):
                whole.add(piece)
        vocabulary.whole = frozenset(whole)
        all_whole |= whole
    return sorted(all_whole)


class ListedPieces(SplitPieces):
    """Pieces of the SentencePiece model `model` with the ids of their places in `pieces`."""

    kind = "listed"

    def __init__(self, pieces: Sequence[str], model: bytes, whole: Iterable[str] = ()) -> None:
        import sentencepiece

        super().__init__(pieces, whole)
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        # Unlike the constructor, it refuses an empty model.
        self._processor.LoadFromSerializedProto(model)

    @classmethod
    def restored(cls, content: bytes) -> Self:
        fields = json.loads(content)
        model = base64.b64decode(fields["model"], validate=True)
        return cls(fields["pieces"], model, fields.get("whole", ()))

    def splitter(self) -> dict[str, str]:
        return {"model": base64.b64encode(self.model).decode()}

    def makes(self, piece: str) -> bool:
        """See `SplitPieces`. Unknown characters are pieces, too, which the model does not list."""
        number = self._processor.piece_to_id(piece)
        if not self._processor.is_unknown(number) and not self._processor.is_control(number):
            return True
        pieces = self._processor.encode(piece, out_type=str)
        return len(pieces) > 0 and pieces[-1] == piece

    def encode(self, text: str) -> list[int]:
        ids = []
        for is_whole, group in groupby(text.split(" "), self.whole.__contains__):
            pieces = list(group)
            if not is_whole:
                pieces = self._processor.encode(" ".join(pieces), out_type=str)
            ids += [self._ids.get(piece, UNK) for piece in pieces]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        pieces = [self._spaced(self._pieces[i]) for i in self._checked(ids) if i == UNK or i > EOS]
        return str(self._processor.decode_pieces(pieces)).replace(SPACE, " ").strip()

    def _spaced(self, piece: str) -> str:
        """Return a piece with its space. The names of entries that are kept whole have none."""
        return SPACE + piece if piece in self.whole else piece

    @cached_property
    def texts(self) -> list[str]:
        texts = [""] * (EOS + 1)
        for piece in self._pieces[EOS + 1 :]:
            is_byte = self._processor.is_byte(self._processor.piece_to_id(piece))
            texts.append("" if is_byte else self._spaced(piece))
        return texts


class MergedPieces(SplitPieces):
    """Pieces of words by the merges of subword-nmt (Sennrich et al. 2016), as in `lo@@ wer`.

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
        self._ranks: dict[tuple[str, ...], int] = {}
        for rank, pair in enumerate(pairs):
            self._ranks.setdefault(pair, rank)
        self._products = {first + second for first, second in pairs}
        self._split = lru_cache(_LARGEST_CACHE)(self._merged)

    def makes(self, piece: str) -> bool:
        """See `SplitPieces`."""
        symbol = piece + _END_OF_WORD
        if piece.endswith(JOINER):
            symbol = piece.removesuffix(JOINER)
        is_character = len(symbol.removesuffix(_END_OF_WORD)) < 2
        return is_character or symbol in self._products

    def encode(self, text: str) -> list[int]:
        ids = []
        for word in text.split(" "):
            if word in self.whole:
                ids.append(self._ids.get(word, UNK))
            elif word:
                ids += [self._ids.get(piece, UNK) for piece in self._split(word)]
        return ids

    def _merged(self, word: str) -> list[str]:
        """Return the pieces of a word."""
        symbols = [*word[:-1], word[-1] + _END_OF_WORD]
        while candidates := self._ranks.keys() & set(pairwise(symbols)):
            learned_first = min(candidates, key=self._ranks.__getitem__)
            merged: list[str] = []
            for symbol in symbols:
                if merged and (merged[-1], symbol) == learned_first:
                    merged[-1] += symbol
                else:
                    merged.append(symbol)
            symbols = merged
        *inner, last = symbols
        return [*(symbol + JOINER for symbol in inner), last.removesuffix(_END_OF_WORD)]

    def decode(self, ids: Sequence[int]) -> str:
        pieces = []
        for i in self._checked(ids):
            if i == UNK:
                pieces.append(UNKNOWN_TEXT.strip())
            elif i > EOS:
                pieces.append(self._pieces[i])
        return re.sub(f"{JOINER}( |$)", "", " ".join(pieces))

    @cached_property
    def texts(self) -> list[str]:
        texts = [""] * (EOS + 1)
        for piece in self._pieces[EOS + 1 :]:
            if piece.endswith(JOINER):
                texts.append(piece.removesuffix(JOINER))
            else:
                texts.append(piece + SPACE)
        return texts

    def splitter(self) -> dict[str, str]:
        return {"merges": self.merges}
