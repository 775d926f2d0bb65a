"""Vocabularies: text to ids and back, by BPE, unigram, word pieces or whole tokens.

All kinds keep the ids PAD 0, UNK 1, BOS 2, EOS 3 and never produce PAD, BOS or EOS from text, whatever it says. Except
for whole tokens they are lossless: spaces are written as U+2581 within the pieces, as SentencePiece does, and `decode`
gives back every text whose characters the vocabulary knows. What cannot come back: a U+2581 that stands in the text
becomes a space, and a run of characters that are not in the vocabulary becomes `UNKNOWN_TEXT`, unless bytes stand in
for them.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nmt_cli.errors import DataError, UsageError
from nmt_cli.interfaces import BOS, EOS, PAD, SPECIAL_SYMBOLS, UNK

KINDS = ("bpe", "unigram", "wordpiece", "none")
UNKNOWN_TEXT = " \u2047 "
"""What `decode` writes for the id UNK: SentencePiece's double question mark between spaces."""

SPACE = "\u2581"
_RESERVED = re.compile("[\0\u2585]")  # SentencePiece's trainer leaves out a whole line that has the latter
_LONGEST_CACHED_WORD = 64
_LARGEST_CACHE = 1 << 18
_TRAINER_THREADS = 4  # fixed: the unigram model's sums depend on it, and the machine's cores must not matter


class Vocabulary(Protocol):
    """Text to ids and back."""

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        ...

    def __len__(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; PAD, BOS and EOS write nothing, UNK writes `UNKNOWN_TEXT`."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The written form of each id."""
        ...

    def serialise(self) -> bytes:
        """All of the vocabulary, in the form that its file has."""
        ...


@dataclass(frozen=True)
class LearningOptions:
    """How a vocabulary is learned from text."""

    kind: str = "bpe"
    size: int = 10000  # the special symbols included
    byte_fallback: bool = False  # spell unknown characters as their UTF-8 bytes (256 ids)
    character_coverage: float = 1.0  # share of the text's characters that must be in the vocabulary


class SentencePieces:
    """BPE or unigram pieces, by SentencePiece, with settings that lose nothing."""

    def __init__(self, model: bytes, kind: str) -> None:
        import sentencepiece

        self.kind = kind
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._size = self._processor.get_piece_size()

    def __len__(self) -> int:
        return int(self._size)

    def encode(self, text: str) -> list[int]:
        return list(self._processor.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._processor.decode(_checked(ids, self._size)))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [str(self._processor.id_to_piece(i)) for i in _checked(ids, self._size)]

    def serialise(self) -> bytes:
        return self._model

    def __reduce__(self) -> tuple[Any, ...]:
        return SentencePieces, (self._model, self.kind)


class WordPieces:
    """Word pieces: each word is cut, from its start, into the longest pieces that the vocabulary has.

    Wu et al. 2016 (GNMT), section 4.1. A word is a space, written U+2581, and what follows it up to the next one. A run
    of unknown characters costs one UNK (or its bytes), not the whole word.
    """

    kind = "wordpiece"

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = list(pieces)
        _check_special(self._pieces)
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if i > EOS}
        self._byte_ids = [self._ids.pop(_byte_piece(b), UNK) for b in range(256)] if _has_bytes(self._pieces) else []
        self._bytes = {i: b for b, i in enumerate(self._byte_ids)}
        self._longest = max(map(len, self._ids), default=1)
        self._cache: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        if not text:
            return []
        ids: list[int] = []
        for word in text.replace(SPACE, " ").split(" "):
            ids.extend(self._word(SPACE + word))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._texts(_checked(ids, len(self)))).removeprefix(SPACE).replace(SPACE, " ")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[i] for i in _checked(ids, len(self))]

    def serialise(self) -> bytes:
        return _serialise_pieces(self.kind, self._pieces)

    def _word(self, word: str) -> list[int]:
        known = self._cache.get(word)
        if known is None:
            known = self._longest_matches(word)
            if len(word) <= _LONGEST_CACHED_WORD:
                if len(self._cache) >= _LARGEST_CACHE:
                    self._cache.clear()
                self._cache[word] = known
        return known

    def _longest_matches(self, word: str) -> list[int]:
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
                self._add_unknown(word[start], ids)
                start += 1
        return ids

    def _add_unknown(self, character: str, ids: list[int]) -> None:
        if self._byte_ids:
            ids.extend(self._byte_ids[b] for b in character.encode("utf-8"))
        elif ids[-1:] != [UNK]:
            ids.append(UNK)

    def _texts(self, ids: Sequence[int]) -> Iterator[str]:
        """The text of each id; bytes are gathered until a piece that is none."""
        gathered = bytearray()
        for i in ids:
            if i in self._bytes:
                gathered.append(self._bytes[i])
                continue
            yield gathered.decode("utf-8", errors="replace")
            gathered.clear()
            yield UNKNOWN_TEXT if i == UNK else "" if i <= EOS else self._pieces[i]
        yield gathered.decode("utf-8", errors="replace")


class WholeTokens:
    """One id for each token that stands between spaces. Runs of spaces count as one and come back as one."""

    kind = "none"

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = list(tokens)
        _check_special(self._tokens)
        self._ids = {token: i for i, token in enumerate(self._tokens) if i > EOS}

    @classmethod
    def learn(cls, lines: Iterable[str], size: int | None = None) -> WholeTokens:
        """The `size` (special symbols included; None: all) most frequent tokens of `lines`; ties by code points."""
        counts = Counter(token for line in lines for token in line.split(" ") if token)
        ranked = sorted(counts, key=lambda token: (-counts[token], token))
        return cls([*SPECIAL_SYMBOLS, *(ranked if size is None else ranked[: max(0, size - len(SPECIAL_SYMBOLS))])])

    def __len__(self) -> int:
        return len(self._tokens)

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(token, UNK) for token in text.split(" ") if token]

    def decode(self, ids: Sequence[int]) -> str:
        shown = (i for i in _checked(ids, len(self)) if i not in (PAD, BOS, EOS))
        return " ".join(UNKNOWN_TEXT.strip() if i == UNK else self._tokens[i] for i in shown)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._tokens[i] for i in _checked(ids, len(self))]

    def serialise(self) -> bytes:
        return _serialise_pieces(self.kind, self._tokens)


def learn(lines: Iterable[str], options: LearningOptions) -> Vocabulary:
    """A vocabulary of exactly `options.size` pieces (whole tokens: at most), the same for the same lines.

    The lines are held in memory by the trainer: pass a sample of a large corpus.

    Raises:
        UsageError: the size does not fit the text; the message says which one does.
        DataError: there is no text at all.
    """
    if options.kind == "none":
        return WholeTokens.learn(lines, options.size)
    model = _train(lines, options)
    if options.kind != "wordpiece":
        return SentencePieces(model, options.kind)
    learned = SentencePieces(model, "bpe")
    return WordPieces(learned.pieces(range(len(learned))))


def save(vocabulary: Vocabulary, folder: Path, stem: str) -> dict[str, Any]:
    """Writes the vocabulary to `folder`; returns what `load` needs, as JSON: its file, kind, size and fingerprint."""
    content = vocabulary.serialise()
    name = f"{stem}.{'model' if isinstance(vocabulary, SentencePieces) else 'json'}"
    (folder / name).write_bytes(content)
    fingerprint = hashlib.sha256(content).hexdigest()
    return {"file": name, "kind": vocabulary.kind, "size": len(vocabulary), "sha256": fingerprint}


def load(folder: Path, description: dict[str, Any]) -> Vocabulary:
    """The vocabulary that `save` described.

    Raises:
        DataError: the file is missing, or is not the one that was saved.
    """
    path = folder / Path(str(description["file"])).name  # never outside the folder
    try:
        if not path.is_file():
            raise DataError(f"{path}: cannot read this vocabulary: it is missing, or no regular file")
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read this vocabulary: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != description["sha256"]:
        raise DataError(
            f"{path}: this vocabulary has changed since it was saved; the ids of the model would mean other pieces"
        )
    try:
        vocabulary = _restored(content, str(description["kind"]))
        if len(vocabulary) <= len(SPECIAL_SYMBOLS):
            raise ValueError(f"{len(vocabulary)} entries")
        vocabulary.pieces(range(len(vocabulary)))  # each can be written
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: damaged: not a vocabulary: {error}") from error
    return vocabulary


def _restored(content: bytes, kind: str) -> Vocabulary:
    if kind in ("bpe", "unigram"):
        return SentencePieces(content, kind)
    pieces = json.loads(content)["pieces"]
    for piece in pieces:
        piece.encode("utf-8")  # a string, and no half of a surrogate pair
    return WholeTokens(pieces) if kind == "none" else WordPieces(pieces)


def _train(lines: Iterable[str], options: LearningOptions) -> bytes:
    """A SentencePiece model. Word pieces are chosen as BPE chooses its own, and only applied in another way."""
    import sentencepiece

    model = io.BytesIO()
    guarded = _Guarded(_trainable(lines))
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(guarded),
            model_writer=model,
            model_type="unigram" if options.kind == "unigram" else "bpe",
            vocab_size=options.size,
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
        if guarded.error is not None:
            raise guarded.error from None
        raise _explained(str(error), options, guarded.count) from error
    return model.getvalue()


class _Guarded:
    """Iterates for SentencePiece, which turns every exception into its own: remembers the real one."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.count = 0
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for line in self._lines:
                self.count += 1
                yield line
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise


def _trainable(lines: Iterable[str]) -> Iterator[str]:
    """The lines, cut at the characters for which SentencePiece would leave the whole line out."""
    for line in lines:
        yield from filter(None, _RESERVED.split(line))


def _explained(message: str, options: LearningOptions, lines: int) -> Exception:
    if not lines:
        return DataError("there is no text to learn subwords from: every training pair was empty or was dropped")
    if found := re.search(r"Vocabulary size too high \(\d+\)\. Please set it to a value <= (\d+)", message):
        return UsageError(
            f"--vocab-size {options.size} is too large for this text: it has only {found[1]} pieces of the kind "
            f"{options.kind}; use --vocab-size {found[1]} or less"
        )
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return UsageError(
            f"--vocab-size {options.size} is too small: the text's characters alone need {found[1]}; use at least "
            f"--vocab-size {found[1]}, or lower --character-coverage (now {options.character_coverage:g})"
        )
    return DataError(f"SentencePiece cannot learn a vocabulary ({options.kind}, {options.size}): {message}")


def _checked(ids: Sequence[int], size: int) -> list[int]:
    """The ids as Python integers.

    Raises:
        DataError: one is out of range.
    """
    plain = [int(i) for i in ids]
    for i in plain:
        if not 0 <= i < size:
            raise DataError(f"id {i} is not in this vocabulary of {size}; it belongs to another one")
    return plain


def _check_special(pieces: Sequence[str]) -> None:
    if tuple(pieces[: len(SPECIAL_SYMBOLS)]) != SPECIAL_SYMBOLS:
        raise DataError(f"not a vocabulary: it must begin with {', '.join(SPECIAL_SYMBOLS)}, not {list(pieces[:4])}")


def _serialise_pieces(kind: str, pieces: Sequence[str]) -> bytes:
    return (json.dumps({"kind": kind, "pieces": list(pieces)}, ensure_ascii=False, indent=0) + "\n").encode()


def _byte_piece(byte: int) -> str:
    return f"<0x{byte:02X}>"


def _has_bytes(pieces: Sequence[str]) -> bool:
    return list(pieces[EOS + 1 : EOS + 257]) == [_byte_piece(b) for b in range(256)]
