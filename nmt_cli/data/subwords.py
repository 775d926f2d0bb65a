"""Vocabularies: text to ids and back, by BPE, unigram, word pieces, characters or whole tokens.

All kinds use the ids PAD 0, UNK 1, BOS 2, EOS 3 and never produce PAD, BOS or EOS from text. Except
for whole tokens they are lossless: spaces are written as U+2581 within the pieces, as in
SentencePiece, and `decode` returns every text whose characters are in the vocabulary. There are two
exceptions: a U+2581 in the text becomes a space, and a run of unknown characters becomes
`UNKNOWN_TEXT`, unless the vocabulary has byte fallback.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt_cli.data.vocabulary import SPACE, UNKNOWN_TEXT, Listed, Vocabulary
from nmt_cli.errors import DataError, UsageError
from nmt_cli.files import durable
from nmt_cli.files.text import check_regular
from nmt_cli.interfaces import BOS, EOS, PAD, SPECIAL_SYMBOLS, UNK, ragged
from nmt_cli.registry import entry_points

if TYPE_CHECKING:
    from nmt_cli.interfaces import Ragged

LARGEST_FILE = 1 << 28  # bytes of a vocabulary. SentencePiece crashes at much larger ones
LARGEST = (1 << 31) - 1  # entries of a vocabulary: what SentencePiece takes
KINDS = ("bpe", "unigram", "wordpiece", "character", "none")
# SentencePiece's trainer skips a line with U+2585, and cuts the names of its pieces out of the
# text. So lines are divided in these places.
_RESERVED = re.compile("[\0\u2585]|(?<=<)(?=(?:pad|unk|s|/s|0x[0-9A-F]{2})>)")
_LONGEST_CACHED_WORD = 64
_LARGEST_CACHE = 1 << 18
_TRAINER_THREADS = 4  # fixed, because the unigram model's sums depend on it
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@dataclass(frozen=True)
class LearningOptions:
    """Options of `learn`."""

    kind: str = "bpe"
    size: int = 10000  # special symbols included
    byte_fallback: bool = False  # spell unknown characters as their UTF-8 bytes (256 ids)
    # Share of the text's characters that the vocabulary must contain.
    character_coverage: float = 1.0
    reserved: int = 0  # entries of `size` that are left for others


class SentencePieces(Vocabulary):
    """BPE or unigram pieces or characters, by SentencePiece, with lossless settings."""

    def __init__(self, model: bytes, kind: str) -> None:
        import sentencepiece

        self.kind = kind
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, text: str) -> list[int]:
        return list(self._processor.encode(text))

    def encode_lines(self, lines: Sequence[str]) -> Ragged:
        if self._faster is None:
            return ragged(self.encode_each(lines))
        return self._faster(lines)

    @cached_property
    def _faster(self) -> Callable[[Sequence[str]], Ragged] | None:
        """A faster `encode_lines` of nmt_cli/fast. None without it or with NMT_FAST=0."""
        if os.environ.get("NMT_FAST") == "0" or not importlib.util.find_spec("nmt_cli.fast"):
            return None
        word_ids = importlib.import_module("nmt_cli.fast.text.word_ids")
        encoder: Callable[[Sequence[str]], Ragged] | None = word_ids.encoder(self)
        return encoder

    def score(self, i: int) -> float:
        """Return a BPE piece's rank, as a negative number, or a unigram piece's log-probability."""
        return float(self._processor.get_score(i))

    def encode_each(self, lines: Sequence[str]) -> list[list[int]]:
        """Return what `encode` returns for each line."""
        return list(self._processor.encode(list(lines), num_threads=1))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._processor.decode(self._checked(ids)))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [str(self._processor.id_to_piece(i)) for i in self._checked(ids)]

    @cached_property
    def texts(self) -> list[str]:
        texts = []
        for i in range(len(self)):
            has_text = i > EOS and not self._processor.is_byte(i)
            texts.append(self._processor.id_to_piece(i) if has_text else "")
        return texts

    def serialise(self) -> bytes:
        return bytes(self._processor.serialized_model_proto())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.serialise(), self.kind)


class WordPieces(Listed):
    """Word pieces: each word is cut from its start into the longest pieces in the vocabulary.

    Wu et al. 2016, section 4.1. A word is a space, written U+2581, and all that follows up to the
    next one. A run of unknown characters is one UNK (or its bytes). The rest of the word stays.
    """

    kind = "wordpiece"

    def __init__(self, pieces: Sequence[str]) -> None:
        super().__init__(pieces)
        self._byte_ids: list[int] = []  # with byte fallback: of the bytes 0 to 255
        if self._pieces[EOS + 1 : EOS + 257] == _BYTES:
            self._byte_ids = [self._ids.pop(piece) for piece in _BYTES]
        self._longest = max(map(len, self._ids), default=1)
        self._cached_match = lru_cache(_LARGEST_CACHE)(self._match)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        if not text:
            return ids
        for word in text.replace(SPACE, " ").split(" "):
            if len(word) <= _LONGEST_CACHED_WORD:
                ids.extend(self._cached_match(SPACE + word))
            else:
                ids.extend(self._match(SPACE + word))
        return ids

    @cached_property
    def texts(self) -> list[str]:
        first = EOS + 1 + len(self._byte_ids)
        return [""] * first + self._pieces[first:]

    @cached_property
    def _contents(self) -> list[bytes]:
        """The bytes that each id adds to a line. A character may be several ids, a byte each."""
        contents = [text.encode() for text in self.texts]
        contents[UNK] = UNKNOWN_TEXT.encode()
        for byte, i in enumerate(self._byte_ids):
            contents[i] = bytes([byte])
        return contents

    def decode(self, ids: Sequence[int]) -> str:
        content = b"".join(self._contents[i] for i in self._checked(ids))
        return content.decode(errors="replace").removeprefix(SPACE).replace(SPACE, " ")

    def _match(self, word: str) -> list[int]:
        ids: list[int] = []
        start = 0
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                piece = self._ids.get(word[start:end])
                if piece is not None:
                    ids.append(piece)
                    start = end
                    break
            else:
                if self._byte_ids:
                    ids.extend(self._byte_ids[byte] for byte in word[start].encode("utf-8"))
                elif ids[-1:] != [UNK]:
                    ids.append(UNK)
                start += 1
        return ids


class WholeTokens(Listed):
    """One id for each token separated by spaces. A run of spaces decodes to one space."""

    kind = "none"

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(token, UNK) for token in text.split(" ") if token]

    @cached_property
    def texts(self) -> list[str]:
        return ["" if i <= EOS else SPACE + token for i, token in enumerate(self._pieces)]

    def decode(self, ids: Sequence[int]) -> str:
        tokens = []
        for i in self._checked(ids):
            if i == UNK:
                tokens.append(UNKNOWN_TEXT.strip())
            elif i > EOS:
                tokens.append(self._pieces[i])
        return " ".join(tokens)


def learn(lines: Iterable[str], options: LearningOptions) -> Vocabulary:
    """Learn a vocabulary of `size - reserved` entries. Equal lines give an equal vocabulary.

    Characters and whole tokens may be fewer. The trainer holds the lines in memory. Word pieces are
    learned by BPE and differ in how they are applied.

    Raises:
        UsageError: the size does not fit the text, or the kind is not one of `KINDS`.
        DataError: there is no text.
    """
    if options.kind not in KINDS:
        raise UsageError(
            f"--subwords {options.kind} cannot be learned from text: give --subwords-from "
            "CHECKPOINT"
        )
    if options.kind == "none":
        counts = Counter(token for line in lines for token in line.split(" ") if token)
        ranked = sorted(counts, key=lambda token: (-counts[token], token))
        return WholeTokens([*SPECIAL_SYMBOLS, *ranked][: options.size - options.reserved])
    learned = SentencePieces(_train(lines, options), options.kind)
    if options.kind == "wordpiece":
        return WordPieces(learned.pieces(range(len(learned))))
    return learned


def save(vocabulary: Vocabulary, folder: Path, stem: str) -> dict[str, Any]:
    """Write the vocabulary to `folder`, and return its entry for `load`, as JSON."""
    content = vocabulary.serialise()
    ending = "model" if isinstance(vocabulary, SentencePieces) else "json"
    name = f"{stem}.{ending}"
    durable.write_bytes(folder / name, content)
    sha256 = hashlib.sha256(content).hexdigest()
    return {"file": name, "kind": vocabulary.kind, "size": len(vocabulary), "sha256": sha256}


def load(folder: Path, description: dict[str, Any]) -> Vocabulary:
    """Load the vocabulary that `save` described. Raise DataError if its file is not as it was."""
    path = folder / Path(str(description["file"])).name  # never outside `folder`
    kind = str(description["kind"])
    check_regular(path, LARGEST_FILE)
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != description["sha256"]:
        raise DataError(
            f"{path}: this vocabulary has changed since it was saved; restore the original"
        )
    try:
        vocabulary = _restored(content, kind)
        if len(vocabulary) <= len(SPECIAL_SYMBOLS):
            raise ValueError(f"{len(vocabulary)} entries")
        for piece in vocabulary.pieces(range(len(vocabulary))):
            piece.encode("utf-8")  # raises if it is not a string, or half a surrogate pair
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: damaged: not a vocabulary: {error}") from error
    return vocabulary


def _restored(content: bytes, kind: str) -> Vocabulary:
    if kind in ("bpe", "unigram", "character"):
        return SentencePieces(content, kind)
    if kind == "wordpiece":
        return WordPieces(json.loads(content)["pieces"])
    if kind == "none":
        return WholeTokens(json.loads(content)["pieces"])
    vocabulary: Vocabulary = entry_points("nmt.vocabularies")[kind].load().restored(content)
    return vocabulary


def kinds() -> list[str]:
    """Return the kinds of vocabularies: `KINDS` and the entry points `nmt.vocabularies`.

    An entry point is a class of `Vocabulary` with the class method `restored(content)`, the reverse
    of `serialise`.
    """
    return [*KINDS, *sorted(entry_points("nmt.vocabularies").names)]


def _train(lines: Iterable[str], options: LearningOptions) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    count = 0
    failure: BaseException | None = None

    def text() -> Iterator[str]:
        nonlocal count, failure
        try:
            for line in lines:
                for part in filter(None, _RESERVED.split(line)):
                    count += 1
                    yield part
        # SentencePiece replaces every error by an error of its own.
        except (Exception, KeyboardInterrupt) as error:
            failure = error
            raise

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=text(),
            model_writer=model,
            model_type={"unigram": "unigram", "character": "char"}.get(options.kind, "bpe"),
            vocab_size=options.size - options.reserved,
            byte_fallback=options.byte_fallback,
            character_coverage=options.character_coverage,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            max_sentence_length=1 << 20,
            num_threads=_TRAINER_THREADS,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_piece=SPECIAL_SYMBOLS[PAD],
            unk_piece=SPECIAL_SYMBOLS[UNK],
            bos_piece=SPECIAL_SYMBOLS[BOS],
            eos_piece=SPECIAL_SYMBOLS[EOS],
            unk_surface=UNKNOWN_TEXT,
            minloglevel=2,
        )
    except RuntimeError as error:
        if failure is not None:
            raise failure from None
        raise _explained(str(error), options, count) from error
    return model.getvalue()


def _explained(message: str, options: LearningOptions, lines: int) -> Exception:
    """Return the error for SentencePiece's `message` about so many lines."""
    if not lines:
        return DataError("there is no text to learn subwords from")
    too_high = re.search(
        r"Vocabulary size too high \(\d+\)\. Please set it to a value <= (\d+)", message
    )
    if too_high:
        most = int(too_high[1]) + options.reserved
        return UsageError(
            f"--vocab-size {options.size} is too large for this text: use --vocab-size {most} or "
            "less"
        )
    too_low = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if too_low:
        least = int(too_low[1]) + options.reserved
        return UsageError(
            f"--vocab-size {options.size} is too small for the text's characters: use at least "
            f"--vocab-size {least}, or lower --character-coverage (now "
            f"{options.character_coverage:g}). Where a side has too little text for it, use a "
            "joint vocabulary, or --subwords character"
        )
    return DataError(
        f"SentencePiece cannot learn a vocabulary ({options.kind}, {options.size}): {message}"
    )
