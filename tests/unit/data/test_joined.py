"""Several corpora as one: the same sentences, lengths and weights as of the text in one piece."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_corpus import PAIRS, pairs, with_parts, write

from nmt_cli.data.corpus import Corpus
from nmt_cli.data.joined import JoinedCorpus
from nmt_cli.errors import DataError


@given(sentences=st.lists(pairs, min_size=1, max_size=4), data=st.data())
def test_sentences_of_all_parts_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[list[tuple[list[int], list[int]]]], data: st.DataObject
) -> None:
    folders = [write(tmp_path_factory.mktemp("part"), some) for some in sentences]
    joined = JoinedCorpus([Corpus.open(folder, "train") for folder in folders], [1] * len(folders))
    whole = Corpus.open(write(tmp_path_factory.mktemp("whole"), [pair for some in sentences for pair in some]), "train")
    assert len(joined) == len(joined.source_lengths) == len(joined.target_lengths) == len(whole)
    indices = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=9)))
    for side in ("source", "target"):
        for found, expected in zip(joined.ids(side, indices), whole.ids(side, indices), strict=True):
            assert found.tolist() == expected.tolist()
    assert joined.source_lengths[indices].tolist() == whole.source_lengths[indices].tolist()
    assert joined.target_lengths[indices].tolist() == whole.target_lengths[indices].tolist()


def test_weights_multiply_and_belong_to_the_fingerprint(tmp_path: Path) -> None:
    plain, parted = (tmp_path / name for name in ("plain", "parted"))
    write(plain, PAIRS)
    with_parts(write(parted, PAIRS), [{"sentences": 2, "weight": 1}, {"sentences": 1, "weight": 3}])
    first, second = (Corpus.open(folder, "train") for folder in (plain, parted))
    joined = JoinedCorpus([first, second], [1, 2])
    assert joined.weights == [(0, 3, 1), (3, 5, 2), (5, 6, 6)]
    others = (([first, second], [1, 1]), ([first, second], [2, 1]), ([second, first], [2, 1]), ([first], [2]))
    assert len({joined.fingerprint, *(JoinedCorpus(*each).fingerprint for each in others)}) == 5


def test_every_part_is_verified(tmp_path: Path) -> None:
    write(tmp_path, PAIRS)
    shutil.copytree(tmp_path, tmp_path / "copy")
    joined = JoinedCorpus([Corpus.open(folder, "train") for folder in (tmp_path, tmp_path / "copy")], [1, 1])
    joined.verify()
    ids = tmp_path / "copy" / "train.source.ids"
    ids.write_bytes(bytes(len(ids.read_bytes())))
    with pytest.raises(DataError, match=str(ids)):
        joined.verify()
