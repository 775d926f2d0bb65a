"""What is written is read back. Damaged files are errors."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data.corpus import (
    SIDES,
    Corpus,
    CorpusWriter,
    JoinedCorpus,
    Part,
    selected,
)
from nmt_cli.errors import DataError

Sentences = list[list[int]]

ids = st.lists(st.integers(0, 65535), max_size=6)
pairs = st.lists(st.tuples(ids, ids), min_size=1, max_size=12)


def write(
    folder: Path,
    sentences: list[tuple[list[int], list[int]]],
    split: str = "train",
    size: int = 65536,
    batch: int = 3,
) -> Path:
    """A data folder with one split, written in batches of `batch` pairs.

    Raw line i is "source i ".
    """
    folder.mkdir(exist_ok=True)
    with CorpusWriter(folder, split, (size, size)) as writer:
        for start in range(0, len(sentences), batch):
            some = sentences[start : start + batch]
            for number, side in enumerate(("source", "target")):
                flat = np.array([i for pair in some for i in pair[number]], dtype=np.uint32)
                lengths = np.array([len(pair[number]) for pair in some])
                writer.add(
                    side, flat, lengths, [f"{side} {start + i}\x85" for i in range(len(some))]
                )
        description = writer.close()
    manifest = {"schema": 1, "splits": {split: description}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


PAIRS = [([5, 6, 7], [8]), ([], [9, 10]), ([11], [12, 13, 14, 15])]


@given(sentences=pairs, batch=st.integers(1, 5), size=st.sampled_from([65536, 65537]))
def test_sentences_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    sentences: list[tuple[list[int], list[int]]],
    batch: int,
    size: int,
) -> None:
    corpus = Corpus.open(
        write(tmp_path_factory.mktemp("data"), sentences, size=size, batch=batch), "train"
    )
    assert [
        (corpus.source(i).tolist(), corpus.target(i).tolist()) for i in range(len(corpus))
    ] == sentences
    assert corpus.source_lengths[:].tolist() == [len(source) + 1 for source, _ in sentences]
    assert corpus.target_lengths[:].tolist() == [len(target) + 1 for _, target in sentences]
    with pytest.raises(IndexError):
        corpus.source(len(sentences))
    corpus.verify()


@given(sentences=pairs, data=st.data())
def test_several_sentences_at_once(
    tmp_path_factory: pytest.TempPathFactory,
    sentences: list[tuple[list[int], list[int]]],
    data: st.DataObject,
) -> None:
    corpus = Corpus.open(write(tmp_path_factory.mktemp("data"), sentences), "train")
    chosen = data.draw(st.lists(st.integers(0, len(sentences) - 1), min_size=1))
    for side, name in enumerate(SIDES):
        ids, lengths = corpus.ids(name, chosen)
        assert ids.tolist() == [number for i in chosen for number in sentences[i][side]]
        assert lengths.tolist() == [len(sentences[i][side]) for i in chosen]
        assert (
            (corpus.source_lengths, corpus.target_lengths)[side][np.array(chosen)] == lengths + 1
        ).all()


def test_ids_are_mapped_and_take_as_few_bytes_as_they_need(tmp_path: Path) -> None:
    corpus = Corpus.open(write(tmp_path, PAIRS, size=65536), "train")
    assert (tmp_path / "train.source.ids").read_bytes() == bytes([5, 0, 6, 0, 7, 0, 11, 0])
    assert np.fromfile(tmp_path / "train.source.offsets", "<i8").tolist() == [0, 3, 3, 4]
    assert isinstance(corpus._sides["source"][0].base, np.memmap)
    large = write(tmp_path / "large", PAIRS, size=65537)
    assert np.fromfile(large / "train.source.ids", "<u4").tolist() == [5, 6, 7, 11]


def test_raw_lines_are_kept_for_validation(tmp_path: Path) -> None:
    assert not list(write(tmp_path, PAIRS).glob("*.txt"))
    corpus = Corpus.open(write(tmp_path, PAIRS, "valid"), "valid")
    assert corpus.raw_lines("source") == ["source 0\x85", "source 1\x85", "source 2\x85"]
    assert corpus.raw_lines("target")[2] == "target 2\x85"


def test_fingerprint_follows_the_content(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    same = Corpus.open(write(folders[0], PAIRS, batch=1), "train").fingerprint
    assert Corpus.open(write(folders[1], PAIRS, batch=2), "train").fingerprint == same
    changed = [*PAIRS[:2], ([11], [12, 13, 14, 16])]
    assert Corpus.open(write(folders[2], changed), "train").fingerprint != same


def with_parts(folder: Path, parts: object) -> Path:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["splits"]["train"]["parts"] = parts
    path.write_text(json.dumps(manifest))
    return folder


def test_weights_of_the_parts(tmp_path: Path) -> None:
    plain = Corpus.open(write(tmp_path, PAIRS), "train")
    assert plain.parts == [Part(0, 3, 1, tmp_path)]
    parts = [
        {"prefix": "a", "sentences": 2, "weight": 1},
        {"prefix": "b", "sentences": 1, "weight": 1},
    ]
    parted = Corpus.open(with_parts(tmp_path, parts), "train")
    assert parted.parts == [Part(0, 2, 1, tmp_path, "a"), Part(2, 3, 1, tmp_path, "b")]
    assert parted.fingerprint == plain.fingerprint
    parts[1]["weight"] = 3
    upsampled = Corpus.open(with_parts(tmp_path, parts), "train")
    assert [part.weight for part in upsampled.parts] == [1, 3]
    assert upsampled.fingerprint != plain.fingerprint


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [{"sentences": 3}],
        [{"sentences": 3, "weight": 1001}],
        [{"sentences": 3, "weight": 0}],
        [{"sentences": 3, "weight": "1"}],
        [{"sentences": 2, "weight": 1}],
        [{"sentences": 4, "weight": 1}, {"sentences": -1, "weight": 1}],
    ],
)
def test_wrong_parts_are_an_error(tmp_path: Path, parts: object) -> None:
    with pytest.raises(DataError, match=r"damaged: the entry train"):
        Corpus.open(with_parts(write(tmp_path, PAIRS), parts), "train")


@pytest.mark.parametrize("name", ["train.source.ids", "train.target.offsets"])
@pytest.mark.parametrize("length", [-1, 1, 8])
def test_file_of_the_wrong_size_is_named(tmp_path: Path, name: str, length: int) -> None:
    path = write(tmp_path, PAIRS) / name
    content = path.read_bytes()
    path.write_bytes(content[:length] if length < 0 else content + bytes(length))
    with pytest.raises(DataError, match=rf"{name}: damaged"):
        Corpus.open(tmp_path, "train")


@pytest.mark.parametrize("offsets", [[0, 4, 3, 4], [1, 3, 3, 4], [0, 3, 3, 5], [0, -3, 3, 4]])
def test_offsets_that_do_not_rise_are_refused(tmp_path: Path, offsets: list[int]) -> None:
    np.array(offsets, "<i8").tofile(write(tmp_path, PAIRS) / "train.source.offsets")
    with pytest.raises(DataError, match=r"train\.source\.offsets: damaged"):
        Corpus.open(tmp_path, "train")


@pytest.mark.parametrize("name", ["source.ids", "target.offsets", "target.txt"])
def test_verify_finds_a_flipped_bit(tmp_path: Path, name: str) -> None:
    corpus = Corpus.open(write(tmp_path, PAIRS, "valid"), "valid")
    path = tmp_path / f"valid.{name}"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"valid\.{name}: has changed"):
        corpus.verify()


def test_ids_outside_of_the_vocabulary(tmp_path: Path) -> None:
    """As of data with the vocabulary of others."""
    corpus = Corpus.open(write(tmp_path, PAIRS), "train")
    corpus.check_ids((12, 16))
    with pytest.raises(DataError, match=r"train\.source\.ids: .*id 11, .*11 entries"):
        corpus.check_ids((11, 16))
    with pytest.raises(DataError, match=r"train\.target\.ids: has the id 15"):
        corpus.check_ids((12, 15))


@pytest.mark.timeout(120)  # it would wait for ever
def test_pipes_are_not_read(tmp_path: Path) -> None:
    corpus = Corpus.open(write(tmp_path, PAIRS, "valid"), "valid")
    (tmp_path / "valid.source.txt").unlink()
    os.mkfifo(tmp_path / "valid.source.txt")
    for use in (corpus.verify, partial(corpus.raw_lines, "source")):
        with pytest.raises(DataError, match="txt: this is a pipe or a device"):
            use()


def test_missing_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not prepared data"):
        Corpus.open(tmp_path, "train")
    with pytest.raises(DataError, match=r"absent: no such directory.*--out .*absent"):
        Corpus.open(tmp_path / "absent", "train")
    with pytest.raises(DataError, match="--valid PREFIX"):
        Corpus.open(write(tmp_path, PAIRS), "valid")
    (tmp_path / "train.target.ids").unlink()
    with pytest.raises(DataError, match=r"train\.target\.ids: .*No such file"):
        Corpus.open(tmp_path, "train")


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "[" * 100_000, '{"schema": 99}', '{"schema": 1, "splits": []}'],
)
def test_damaged_json_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(DataError, match=str(tmp_path)):
        Corpus.open(tmp_path, "train")


@pytest.mark.parametrize(
    "change",
    [
        lambda train: train.update(sentences="3"),
        lambda train: train.update(sentences=-1),
        lambda train: train["source"].update(dtype="object"),
        lambda train: train["source"].pop("files"),
    ],
)
def test_a_wrong_manifest_is_an_error(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    path = write(tmp_path, PAIRS) / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest["splits"]["train"])
    path.write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"manifest\.json|damaged"):
        Corpus.open(tmp_path, "train")


@given(sentences=st.lists(pairs, min_size=1, max_size=4), data=st.data())
def test_a_joined_corpus_has_the_sentences_of_all_parts_in_any_order(
    tmp_path_factory: pytest.TempPathFactory,
    sentences: list[list[tuple[list[int], list[int]]]],
    data: st.DataObject,
) -> None:
    folders = [write(tmp_path_factory.mktemp("part"), some) for some in sentences]
    joined = JoinedCorpus([Corpus.open(folder, "train") for folder in folders], [1] * len(folders))
    whole = Corpus.open(
        write(tmp_path_factory.mktemp("whole"), [pair for some in sentences for pair in some]),
        "train",
    )
    assert len(joined) == len(joined.source_lengths) == len(joined.target_lengths) == len(whole)
    indices = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=9)))
    few = selected(joined, indices)
    places = np.arange(len(indices))[::-1]
    for side in ("source", "target"):
        for read_pair, expected in zip(
            joined.ids(side, indices), whole.ids(side, indices), strict=True
        ):
            assert read_pair.tolist() == expected.tolist()
        for read_pair, expected in zip(
            few.ids(side, places), whole.ids(side, indices[::-1]), strict=True
        ):
            assert read_pair.tolist() == expected.tolist()
    assert few.target_lengths.tolist() == whole.target_lengths[indices].tolist()
    assert joined.source_lengths[indices].tolist() == whole.source_lengths[indices].tolist()
    assert joined.target_lengths[indices].tolist() == whole.target_lengths[indices].tolist()


def test_weights_multiply_and_belong_to_the_fingerprint(tmp_path: Path) -> None:
    plain, parted = (tmp_path / name for name in ("plain", "parted"))
    write(plain, PAIRS)
    with_parts(write(parted, PAIRS), [{"sentences": 2, "weight": 1}, {"sentences": 1, "weight": 3}])
    first, second = (Corpus.open(folder, "train") for folder in (plain, parted))
    joined = JoinedCorpus([first, second], [1, 2])
    assert joined.parts == [Part(0, 3, 1, plain), Part(3, 5, 2, parted), Part(5, 6, 6, parted)]
    others = (
        ([first, second], [1, 1]),
        ([first, second], [2, 1]),
        ([second, first], [2, 1]),
        ([first], [2]),
    )
    assert len({joined.fingerprint, *(JoinedCorpus(*parts).fingerprint for parts in others)}) == 5


def test_every_part_is_verified(tmp_path: Path) -> None:
    write(tmp_path, PAIRS)
    shutil.copytree(tmp_path, tmp_path / "copy")
    joined = JoinedCorpus(
        [Corpus.open(folder, "train") for folder in (tmp_path, tmp_path / "copy")], [1, 1]
    )
    joined.verify()
    ids = tmp_path / "copy" / "train.source.ids"
    ids.write_bytes(bytes(len(ids.read_bytes())))
    with pytest.raises(DataError, match=str(ids)):
        joined.verify()
