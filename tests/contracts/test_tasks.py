"""Every registered task: text to ids and back, saving and loading."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nmt_cli import registry
from nmt_cli.annexes.search.prefixes import continuations_of, encode_prefix
from nmt_cli.checkpoint import load_task
from nmt_cli.errors import DataError
from nmt_cli.interfaces import EOS, PAD
from nmt_cli.task import TASK_FILE, Task


class Sample(NamedTuple):
    """A small task of one kind."""

    fields: dict[str, Any]  # of its configuration
    files: dict[str, str]  # the files of `nmt prepare --train text`: endings and contents
    # Whether decoding gives the text back, or only a text that scores as well.
    lossless: bool = True


ENGLISH = ["Two dogs run.", "A dog sleeps (again).", "Nobody, I think, saw 3 dogs?"]
GERMAN = ["Zwei Hunde laufen.", "Ein Hund schläft (wieder).", "Niemand, denke ich, sah 3 Hunde?"]
PAIRS = {
    ".en": "".join(f"{line}\n" for line in ENGLISH * 5),
    ".de": "".join(f"{line}\n" for line in GERMAN * 5),
}
EN_DE = {"source_lang": "en", "target_lang": "de", "vocab_size": 60}

TREES = """(TOP (S (NP (CD Two) (NNS dogs)) (VP (VBP run)) (. .)))
(TOP (S (NP (DT A) (NN dog)) (VP (VBZ sleeps) (PRT (RP in))) (. .)))
(TOP (NP (NP (NNS dogs)) (PP (IN of) (NP (NNP Rome)))))
"""

SAMPLES = {
    "translation": [
        Sample(EN_DE, PAIRS),
        Sample({**EN_DE, "subwords": "wordpiece", "separate_vocabularies": True}, PAIRS),
        Sample(
            {**EN_DE, "subwords": "none", "moses": True, "lowercase": True}, PAIRS, lossless=False
        ),
    ],
    "parsing": [
        Sample({"linearisation": "authors", "vocab_size": 40}, {"": TREES}),
        Sample(
            {"linearisation": "vinyals", "vocab_size": 40, "joint_vocabulary": True},
            {"": TREES},
            lossless=False,
        ),
    ],
}
"""A new task needs an entry here."""


def samples() -> list[Any]:
    """Every sample of every registered task. A task without samples fails."""
    return [
        pytest.param((name, sample), id=f"{name}-{number}")
        for name in registry.names("task")
        for number, sample in enumerate(SAMPLES.get(name, [None]))
    ]


class PreparedTask(NamedTuple):
    """A task with vocabularies, and the pairs that it learned them from."""

    task: Any
    pairs: list[tuple[str, str]]
    lossless: bool


@pytest.fixture(scope="module", params=samples())
def prepared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> PreparedTask:
    name, sample = request.param
    assert sample is not None, f"tests/contracts/test_tasks.py has no sample for the task {name!r}"
    folder = tmp_path_factory.mktemp(name)
    for ending, content in sample.files.items():
        (folder / f"text{ending}").write_text(content, encoding="utf-8")
    task = registry.build(registry.find("task", name).config(**sample.fields))
    examples = list(task.read(str(folder / "text")))
    blocks = list(task.blocks(str(folder / "text")))
    assert [example for block in blocks for example in task.examples(block)] == examples
    assert sum(map(len, blocks)) == len(examples)
    task.learn([task.normalise(example) for example in examples])
    assert len(examples) > 1
    return PreparedTask(
        task, [(example.source, example.target) for example in examples], sample.lossless
    )


def ids_are_words(ids: list[int], size: int) -> bool:
    """Whether all ids are in the vocabulary and none is a special symbol."""
    return all(EOS < i < size for i in ids)


def test_text_round_trips(prepared: PreparedTask) -> None:
    task: Task = prepared.task
    decoded = [
        task.decode_target(task.encode_target(target), source) for source, target in prepared.pairs
    ]
    repaired = [
        task.repaired(task.encode_target(target), source) for source, target in prepared.pairs
    ]
    assert repaired == [(text, {}) for text in decoded]
    references = [target for _, target in prepared.pairs]
    best, worse = (
        next(iter(task.evaluate(outputs, references).values()))
        for outputs in (decoded, references[:1] * len(references))
    )
    assert worse < best == pytest.approx(100.0)
    assert not prepared.lossless or decoded == references


def test_ids_are_words_of_the_vocabularies(prepared: PreparedTask) -> None:
    for source, target in prepared.pairs:
        ids = prepared.task.encode_source(source)
        assert ids
        assert ids_are_words(ids, prepared.task.source_vocabulary_size)
        assert len(prepared.task.source_tokens(ids)) == len(ids)
        ids = prepared.task.encode_target(target)
        assert ids_are_words(ids, prepared.task.target_vocabulary_size)
        assert len(prepared.task.target_tokens(ids)) == len(ids)


def test_many_lines_have_the_ids_of_each(prepared: PreparedTask) -> None:
    sources, targets = zip(*prepared.pairs, strict=True)
    for lines, encode, encode_lines in (
        (sources, prepared.task.encode_source, prepared.task.encode_sources),
        (targets, prepared.task.encode_target, prepared.task.encode_targets),
    ):
        ids, lengths = encode_lines(lines)
        expected = [encode(line) for line in lines]
        assert lengths.tolist() == [len(line) for line in expected]
        assert ids.tolist() == [i for line in expected for i in line]


def test_an_output_can_begin_with_a_target(prepared: PreparedTask) -> None:
    for source, target in prepared.pairs:
        ids, rest = encode_prefix(prepared.task, target)
        while rest:
            token, rest = next(iter(continuations_of(prepared.task, rest).items()))
            ids = [*ids, token]
        assert ids_are_words(ids, prepared.task.target_vocabulary_size)
        assert not prepared.lossless or prepared.task.decode_target(ids, source).startswith(target)


def test_any_text_has_ids_of_the_vocabulary(prepared: PreparedTask) -> None:
    """Unknown characters have an id, so no line can make an embedding fail."""
    for line in ("", "Ж 漢字 🙂 \u2028 <s> </s> <pad>", "x" * 2000):
        ids = prepared.task.encode_source(line)
        assert all(PAD < i < prepared.task.source_vocabulary_size for i in ids)


def test_any_ids_have_text_of_one_line(prepared: PreparedTask) -> None:
    size = prepared.task.target_vocabulary_size
    for ids in ([], list(range(EOS + 1, size)), [size - 1] * 30):
        text = prepared.task.decode_target(ids, prepared.pairs[0][0])
        assert not {"\n", "\r"} & set(text)


def test_output_limit_grows_with_the_source(prepared: PreparedTask) -> None:
    limits = [prepared.task.max_length(n) for n in range(1, 300)]
    assert limits == sorted(limits)
    assert all(limit > n for n, limit in enumerate(limits, start=1))


def test_a_saved_task_is_the_same(prepared: PreparedTask, tmp_path: Path) -> None:
    """Its directory holds everything: loaded from another place, the task gives the same ids."""
    original = tmp_path / "original"
    original.mkdir()
    prepared.task.save(original)
    original.rename(tmp_path / "moved")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load_task(tmp_path / "moved")
    assert loaded.describe() == prepared.task.describe()
    assert loaded.shared_vocabulary == prepared.task.shared_vocabulary
    for source, target in [*prepared.pairs, ("unseen Ж", prepared.pairs[0][1])]:
        assert loaded.encode_source(source) == prepared.task.encode_source(source)
        assert loaded.encode_target(target) == prepared.task.encode_target(target)
        ids = prepared.task.encode_target(target)
        assert loaded.decode_target(ids, source) == prepared.task.decode_target(ids, source)


@pytest.mark.parametrize(
    "damage", [{"schema": 2}, {"config": {"unknown": 1}}, {"config": None}, None]
)
def test_a_damaged_or_missing_task_is_an_error(
    prepared: PreparedTask, tmp_path: Path, damage: dict[str, Any] | None
) -> None:
    path = tmp_path / TASK_FILE
    if damage is not None:
        prepared.task.save(tmp_path)
        path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(DataError, match=re.escape(str(path))):
        type(prepared.task).load(tmp_path)


def test_warns_if_a_library_gives_other_ids(prepared: PreparedTask, tmp_path: Path) -> None:
    prepared.task.save(tmp_path)
    path = tmp_path / TASK_FILE
    content = {
        **json.loads(path.read_text()),
        "probe": [4],
        "libraries": {"sentencepiece": "0.0.1"},
    }
    path.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match=r"sentencepiece 0\.0\.1; installed: python"):
        type(prepared.task).load(tmp_path)


def test_adopted_vocabularies_give_the_same_ids(prepared: PreparedTask) -> None:
    config = type(prepared.task.config)
    names = {field.name for field in dataclasses.fields(config)}
    task = registry.build(
        config(**{name: EN_DE[name] for name in ("source_lang", "target_lang") if name in names})
    )
    task.adopt(prepared.task)
    for source, target in prepared.pairs:
        assert task.encode_source(source) == prepared.task.encode_source(source)
        assert task.encode_target(target) == prepared.task.encode_target(target)


def test_tasks_can_be_pickled(prepared: PreparedTask) -> None:
    prepared.task.encode_source("fill the caches")
    copy = pickle.loads(pickle.dumps(prepared.task))
    assert copy.encode_source(prepared.pairs[0][0]) == prepared.task.encode_source(
        prepared.pairs[0][0]
    )
