"""Pieces of a SentencePiece model, with ids from a list."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import pytest
import sentencepiece

from nmt_cli.annexes.exchange.marian.pieces import MarianPieces
from nmt_cli.annexes.search.prefixes import encode_text
from nmt_cli.data import subwords
from nmt_cli.errors import DataError
from nmt_cli.files.text import fingerprint
from nmt_cli.interfaces import BOS, EOS, PAD, SPECIAL_SYMBOLS, UNK

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = [*SPECIAL_SYMBOLS, "\u2581", *"abcé", ">>deu<<", "日本", *BYTES]
"""`d` is missing."""


def marian_pieces(byte_fallback: bool = False) -> MarianPieces:
    """Letters cut by a SentencePiece model, and a code and a word that the model does not have."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["abcdé", "dcba", "aé cé dé"]),
        model_writer=model,
        model_type="bpe" if byte_fallback else "char",
        vocab_size=265 if byte_fallback else 9,
        byte_fallback=byte_fallback,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return MarianPieces(PIECES, model.getvalue())


@pytest.fixture(scope="module")
def vocabulary() -> MarianPieces:
    return marian_pieces()


def ids(*pieces: str) -> list[int]:
    return [PIECES.index(piece) for piece in pieces]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("dad", ["\u2581", "<unk>", "a", "<unk>"]),
        # No piece of the SentencePiece model, but one of the list.
        (
            "a日本b",
            ["\u2581", "a", "日本", "b"],
        ),
        (">>deu<< a", [">>deu<<", "\u2581", "a"]),
        (">>x\n<<<< a", ["<unk>", "\u2581", "<unk>", "\u2581", "a"]),
        ("a</s>", ["\u2581", "a", "<unk>"]),
    ],
)
def test_pieces_are_looked_up(vocabulary: MarianPieces, text: str, pieces: list[str]) -> None:
    assert vocabulary.encode(text) == ids(*pieces)


def test_text_of_ids(vocabulary: MarianPieces) -> None:
    assert vocabulary.decode(vocabulary.encode("  ab  cé ")) == "ab cé"
    assert vocabulary.decode([BOS, *ids("\u2581", "a"), UNK, *ids("b"), EOS, PAD]) == "a \u2047 b"
    assert vocabulary.decode(ids("日本", "\u2581", "a")) == "日本 a"
    with pytest.raises(DataError, match="out of range"):
        vocabulary.decode([len(vocabulary)])


def test_bytes_are_decoded_together() -> None:
    vocabulary = marian_pieces(byte_fallback=True)
    piece_ids = vocabulary.encode("a☺")
    assert piece_ids == ids("\u2581", "a", "<0xE2>", "<0x98>", "<0xBA>")
    assert vocabulary.decode(piece_ids) == "a☺"
    assert [vocabulary.texts[i] for i in piece_ids] == ["\u2581", "a", "", "", ""]


def test_prefixes(vocabulary: MarianPieces) -> None:
    prefix = encode_text(vocabulary, "ab c")
    assert vocabulary.pieces(prefix.ids) == ["\u2581", "a", "b"]
    assert prefix.rest == "\u2581c"


def test_it_is_saved_copied_and_loaded(vocabulary: MarianPieces, tmp_path: Path) -> None:
    saved = subwords.save(vocabulary, tmp_path, "source")
    assert saved["kind"] == "marian"
    for copy in (subwords.load(tmp_path, saved), pickle.loads(pickle.dumps(vocabulary))):
        assert copy.encode("a日本 d") == vocabulary.encode("a日本 d")
        assert copy.serialise() == vocabulary.serialise()


@pytest.mark.parametrize("content", [b"{}", b'{"pieces": ["<pad>"], "model": ""}'])
def test_damaged_files_are_named(vocabulary: MarianPieces, tmp_path: Path, content: bytes) -> None:
    saved = subwords.save(vocabulary, tmp_path, "source")
    (tmp_path / saved["file"]).write_bytes(content)
    saved["sha256"] = fingerprint(tmp_path / saved["file"])
    with pytest.raises(DataError):
        subwords.load(tmp_path, saved)
