"""Vocabularies that split text as other toolkits do."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from nmt_cli.annexes.exchange.importing.pieces import ListedPieces, MergedPieces, keep_whole
from nmt_cli.annexes.search.prefixes import encode_text
from nmt_cli.data import subwords
from nmt_cli.errors import DataError
from nmt_cli.files.text import fingerprint
from nmt_cli.interfaces import BOS, EOS, PAD, SPECIAL_SYMBOLS, UNK

UNIT = Path(__file__).parents[1]
FAIRSEQ, OPENNMT = UNIT / "fairseq" / "tiny", UNIT / "opennmt" / "tiny"
CODES = (FAIRSEQ / "bpe.codes").read_text("utf-8")


def pieces_of(folder: Path, *more: str) -> list[str]:
    """The special symbols, and all pieces in the examples of the other program."""
    examples = json.loads((folder / "expected.json").read_text("utf-8"))
    all_pieces = {
        piece
        for example in examples
        for side in ("pieces", "output_pieces")
        for piece in example[side].split(" ")
    }
    return [*SPECIAL_SYMBOLS, *sorted(all_pieces), *more]


@pytest.fixture
def merged() -> MergedPieces:
    return MergedPieces(pieces_of(FAIRSEQ), CODES)


@pytest.mark.parametrize("side", ["source", "output"])
def test_text_is_split_and_joined_as_there(side: str, merged: MergedPieces) -> None:
    listed = ListedPieces(pieces_of(OPENNMT), (OPENNMT / "joint.model").read_bytes())
    for folder, vocabulary in ((FAIRSEQ, merged), (OPENNMT, listed)):
        for example in json.loads((folder / "expected.json").read_text("utf-8")):
            ids = vocabulary.encode(example[side])
            assert vocabulary.pieces(ids) == example[
                "pieces" if side == "source" else "output_pieces"
            ].split(" ")
            assert vocabulary.decode([BOS, *ids, EOS, PAD]) == example[side]


def test_merges_follow_their_order() -> None:
    """The earliest learned pair is merged first, from left to right. A word's end is a symbol."""
    codes = "#version: 0.2\nb c\na b\na a\nbc d</w>\na b\n"
    pieces = ["a@@", "bcd", "aa@@", "a", "b@@", "d", "x", "bc@@"]
    vocabulary = MergedPieces([*SPECIAL_SYMBOLS, *pieces], codes)
    assert [
        vocabulary.pieces(vocabulary.encode(word)) for word in ("abcd", "aaaa", "bcd", "x")
    ] == [
        ["a@@", "bcd"],
        ["aa@@", "a@@", "a"],
        ["bcd"],
        ["x"],
    ]
    assert vocabulary.encode("  a   x ") == vocabulary.encode("a x")
    assert vocabulary.pieces(vocabulary.encode("ay")) == ["a@@", "<unk>"]


def test_texts_of_merged_pieces(merged: MergedPieces) -> None:
    ids = merged.encode("old man ?")
    assert "".join(merged.texts[i] for i in ids) == "old\u2581man\u2581?\u2581"
    assert merged.decode([*ids[:1]]) == "o"  # an output that ended within a word
    assert merged.decode([UNK, ids[-1]]) == "\u2047 ?"
    assert encode_text(merged, "old man").ids == ids[: len(merged.encode("old man"))]


def test_entries_that_no_splitter_makes_are_kept_whole(merged: MergedPieces) -> None:
    tags = ["<2de>", "__fr__", "｟ph｠"]
    more = [*tags, "madeupword0001", "averyunlikelytoken7", "<unnamed 9>"]
    vocabularies = [
        MergedPieces(pieces_of(FAIRSEQ, *more), CODES),
        ListedPieces(pieces_of(OPENNMT, *more), (OPENNMT / "joint.model").read_bytes()),
    ]
    for vocabulary, folder in zip(vocabularies, (FAIRSEQ, OPENNMT), strict=True):
        text = json.loads((folder / "expected.json").read_text("utf-8"))[0]["source"]
        plain = vocabulary.encode(text)
        assert UNK in vocabulary.encode(f"<2de> {text}")
        assert keep_whole([vocabulary]) == tags
        assert vocabulary.encode(text) == plain
        ids = vocabulary.encode(f"<2de> __fr__ {text} ｟ph｠")
        assert vocabulary.pieces(ids) == ["<2de>", "__fr__", *vocabulary.pieces(plain), "｟ph｠"]
        assert vocabulary.decode(ids) == f"<2de> __fr__ {text} ｟ph｠"
        assert pickle.loads(pickle.dumps(vocabulary)).encode("<2de>") == ids[:1]
        assert vocabulary.restored(vocabulary.serialise()).encode("<2de>") == ids[:1]


def test_pieces_of_the_other_side_are_no_words() -> None:
    """A joint list with a splitter for each side has pieces that only one of them makes."""
    pieces = [*SPECIAL_SYMBOLS, "ab", "cd", "<2de>"]
    sides = [MergedPieces(pieces, f"#version: 0.2\n{pair}</w>\n") for pair in ("a b", "c d")]
    assert keep_whole(sides) == ["<2de>"]
    assert sides[0].encode("cd") == [UNK, UNK]


def test_it_is_saved_copied_and_loaded(merged: MergedPieces, tmp_path: Path) -> None:
    saved = subwords.save(merged, tmp_path, "source")
    assert b"whole" not in merged.serialise()
    assert saved["kind"] == "subword_nmt"
    for copy in (subwords.load(tmp_path, saved), pickle.loads(pickle.dumps(merged))):
        assert copy.encode("old man ?") == merged.encode("old man ?")
        assert copy.serialise() == merged.serialise()


@pytest.mark.parametrize("merges", ["", "a b\n", "#version: 0.1\na b\n", "#version: 0.2\na b 12\n"])
def test_other_codes_are_refused(merged: MergedPieces, tmp_path: Path, merges: str) -> None:
    with pytest.raises(DataError, match=r"#version: 0\.2"):
        MergedPieces(SPECIAL_SYMBOLS, merges)
    saved = subwords.save(merged, tmp_path, "source")
    content = json.dumps({"pieces": [*SPECIAL_SYMBOLS, "a"], "merges": merges})
    (tmp_path / saved["file"]).write_text(content, "utf-8")
    with pytest.raises(DataError):
        subwords.load(tmp_path, saved | {"sha256": fingerprint(tmp_path / saved["file"])})
