"""Every registered task: text to ids and back, alone and from its folder."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nmt_cli import registry
from nmt_cli.checkpoint import load_task
from nmt_cli.interfaces import EOS, PAD, Task

registry.discover()


class Sample(NamedTuple):
    """How to make a small task of one kind."""

    fields: dict[str, Any]  # of its configuration
    files: dict[str, str]  # what `nmt prepare --train text` reads: the name's ending, and the content
    lossless: bool = True  # whether decoding gives the very text back, or only one that scores as well


ENGLISH = ["Two dogs run.", "A dog sleeps (again).", "Nobody, I think, saw 3 dogs?"]
GERMAN = ["Zwei Hunde laufen.", "Ein Hund schläft (wieder).", "Niemand, denke ich, sah 3 Hunde?"]

TREES = """(TOP (S (NP (CD Two) (NNS dogs)) (VP (VBP run)) (. .)))
(TOP (S (NP (DT A) (NN dog)) (VP (VBZ sleeps) (PRT (RP in))) (. .)))
(TOP (NP (NP (NNS dogs)) (PP (IN of) (NP (NNP Rome)))))
"""

SAMPLES = {
    "translation": [
        Sample(
            {"source_lang": "en", "target_lang": "de", "vocab_size": 60},
            {".en": "".join(f"{line}\n" for line in ENGLISH * 5), ".de": "".join(f"{line}\n" for line in GERMAN * 5)},
        )
    ],
    "parsing": [
        Sample({"linearisation": "authors", "vocab_size": 40}, {"": TREES}),
        Sample({"linearisation": "vinyals", "vocab_size": 40, "joint_vocabulary": True}, {"": TREES}, lossless=False),
    ],
}
"""A new task needs an entry here."""


def samples() -> list[Any]:
    """Every sample of every registered task; a task without any has one that fails."""
    return [
        pytest.param((name, sample), id=f"{name}-{number}")
        for name in registry.names("task")
        for number, sample in enumerate(SAMPLES.get(name, [None]))
    ]


class Made(NamedTuple):
    """A task that has learnt its vocabularies, and the pairs that it was made from."""

    task: Any
    pairs: list[tuple[str, str]]
    lossless: bool


@pytest.fixture(scope="module", params=samples())
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    name, sample = request.param
    assert sample is not None, f"tests/contracts/test_tasks.py has no sample for the task {name!r}"
    folder = tmp_path_factory.mktemp(name)
    for ending, content in sample.files.items():
        (folder / f"text{ending}").write_text(content, encoding="utf-8")
    task = registry.build(registry.find("task", name).config(**sample.fields))
    examples = list(task.read(str(folder / "text")))
    task.learn([task.normalise(example) for example in examples])
    assert len(examples) > 1
    return Made(task, [(example.source, example.target) for example in examples], sample.lossless)


def ids_are_words(ids: list[int], size: int) -> bool:
    """All within the vocabulary, and none of the symbols that the batch adds."""
    return all(EOS < i < size for i in ids)


def test_text_comes_back(made: Made) -> None:
    task: Task = made.task
    decoded = [task.decode_target(task.encode_target(target), source) for source, target in made.pairs]
    references = [target for _, target in made.pairs]
    assert next(iter(task.evaluate(decoded, references).values())) == pytest.approx(100.0)
    assert not made.lossless or decoded == references


def test_ids_are_words_of_the_vocabularies(made: Made) -> None:
    for source, target in made.pairs:
        ids = made.task.encode_source(source)
        assert ids
        assert ids_are_words(ids, made.task.source_vocabulary_size)
        assert len(made.task.source_tokens(ids)) == len(ids)
        ids = made.task.encode_target(target)
        assert ids_are_words(ids, made.task.target_vocabulary_size)
        assert len(made.task.target_tokens(ids)) == len(ids)


def test_any_text_has_ids_that_the_model_knows(made: Made) -> None:
    """No line can make an embedding fail: unknown characters have an id, and an empty line none."""
    for line in ("", " ", "Ж 漢字 🙂 \u2028 <s> </s> <pad>", "x" * 2000):
        ids = made.task.encode_source(line)
        assert all(PAD < i < made.task.source_vocabulary_size for i in ids)


def test_any_ids_have_text_of_one_line(made: Made) -> None:
    size = made.task.target_vocabulary_size
    for ids in ([], list(range(EOS + 1, size)), [size - 1] * 30):
        text = made.task.decode_target(ids, made.pairs[0][0])
        assert "\n" not in text
        assert "\r" not in text


def test_references_score_best(made: Made) -> None:
    references = [target for _, target in made.pairs]
    perfect = made.task.evaluate(references, references)
    worse = made.task.evaluate([references[0]] * len(references), references)
    name = next(iter(perfect))
    assert perfect[name] == pytest.approx(100.0)
    assert worse[name] < perfect[name]


def test_output_limit_leaves_room_and_never_falls(made: Made) -> None:
    limits = [made.task.max_length(n) for n in range(1, 300)]
    assert limits == sorted(limits)
    assert all(limit > n for n, limit in enumerate(limits, start=1))


def test_its_folder_holds_all_of_it(made: Made, tmp_path: Path) -> None:
    """Loaded as from a checkpoint moved elsewhere, it gives the same ids and text."""
    original = tmp_path / "original"
    original.mkdir()
    made.task.save(original)
    original.rename(tmp_path / "moved")
    loaded = load_task(tmp_path / "moved")
    assert type(loaded) is type(made.task)
    assert loaded.shared_vocabulary == made.task.shared_vocabulary
    for source, target in [*made.pairs, ("unseen Ж", made.pairs[0][1])]:
        assert loaded.encode_source(source) == made.task.encode_source(source)
        assert loaded.encode_target(target) == made.task.encode_target(target)
        ids = made.task.encode_target(target)
        assert loaded.decode_target(ids, source) == made.task.decode_target(ids, source)


def test_workers_can_have_a_copy(made: Made) -> None:
    copy = pickle.loads(pickle.dumps(made.task))
    assert copy.encode_source(made.pairs[0][0]) == made.task.encode_source(made.pairs[0][0])
