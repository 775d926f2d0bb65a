"""Every registered change of the sentences: the same updates in a resumed run and on any ranks."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from nmt_cli import registry
from nmt_cli.config import resolve
from nmt_cli.data.corpus import SIDES, JoinedCorpus
from nmt_cli.data.parallel import WorkerDied
from nmt_cli.distributed import World
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.training.start import open_data, plan_of
from nmt_cli.training.updates import AHEAD, Update, Updates

FLAGS: dict[str, dict[str, Any]] = {
    "batch_growth": {"batch_growth": 3},
    "mixing": {
        "mix_temperature": 3.0,
        "stage": ("data*0.5 until 1", "data*1.3 until 2", "data*0.4"),
    },
    "variants": {"bpe_dropout": 0.2, "noise": "typos=0.3"},
}
"""Settings that change the sentences. A component without any is as it is by default."""


def updates_of(data: Path, name: str, rank: int = 0, ranks: int = 1) -> Updates:
    """Updates of a corpus of two parts."""
    task, corpus, _ = open_data([str(data)])
    corpus = JoinedCorpus([corpus, corpus], [1, 0.3])
    flags = {"batch_tokens": 4100, "batch_sentences": 200, **FLAGS.get(name, {})}
    config = resolve(TrainingConfig, flags)
    assert [registry.component_of(extra).name for extra in config.used("sentences")] == [name] * (
        name in FLAGS
    )
    world = World(rank, ranks, torch.device("cpu"))
    return Updates(corpus, plan_of(config, task, corpus), world, micro_batches=4)


def first(updates: Updates, count: int, epoch: int = 0, position: int = 0) -> list[Update]:
    with updates.following(updates.micro_batches, epoch, position) as following:
        return list(islice(following, count))


def as_lists(update: Update) -> Any:
    """Everything about an update, to compare."""
    lengths = [of_side.tolist() for of_side in update.lengths]
    batches = [
        (part.number, part.weight, part.batch.source.tolist(), part.batch.target_out.tolist())
        for part in update.share
    ]
    return (
        update.epoch,
        update.position,
        update.sentences.tolist(),
        update.ends_epoch,
        lengths,
        batches,
    )


@pytest.fixture(params=registry.names("sentences"))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_updates_are_the_same_from_any_position(tiny_data: Path, name: str) -> None:
    """In another process, which builds all of it anew.

    Through several epochs, whose sizes may differ.
    """
    updates = updates_of(tiny_data, name)
    sizes = [len(list(updates.plan.epoch(epoch))) for epoch in range(4)]
    whole = first(updates, sum(sizes))
    assert [(update.epoch, update.position) for update in whole] == [
        (epoch, position) for epoch, size in enumerate(sizes) for position in range(size)
    ]
    assert [update.ends_epoch for update in whole] == [
        update.position + 1 == sizes[update.epoch] for update in whole
    ]
    for number in (1, sizes[0], len(whole) - 1):
        resumed = first(updates_of(tiny_data, name), 1, whole[number].epoch, whole[number].position)
        assert as_lists(resumed[0]) == as_lists(whole[number])
    for epoch, size in enumerate(updates.plan.size(epoch) for epoch in range(4)):
        assert size == sum(len(update.sentences) for update in whole if update.epoch == epoch)


def test_ranks_share_the_updates_of_one(tiny_data: Path, name: str) -> None:
    alone = first(updates_of(tiny_data, name), 3, epoch=1)
    of_ranks = [first(updates_of(tiny_data, name, rank, 2), 3, epoch=1) for rank in range(2)]
    for update, *parts in zip(alone, *of_ranks, strict=True):
        expected = as_lists(update)
        lists = [as_lists(part) for part in parts]
        assert all(part[:-1] == expected[:-1] for part in lists)
        assert sorted(batch for part in lists for batch in part[-1] if batch[1]) == expected[-1]
        assert sum(part.batch.num_tokens for part in update.share) == int(update.lengths[1].sum())


@dataclass(frozen=True)
class Talking(World):
    """A rank that is a thread."""

    barrier: Any = None
    said: Any = None

    def aside(self) -> World:
        return self

    def gather(self, value: Any) -> list[Any]:
        self.said[self.rank] = value
        self.barrier.wait(60)
        values = list(self.said)
        self.barrier.wait(60)
        return values


def test_each_rank_draws_its_part_of_the_text(
    tiny_data: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three ranks together have the updates of ranks that draw all of it."""
    alone = [updates_of(tiny_data, name, rank, 3) for rank in range(3)]
    expected = [list(map(as_lists, first(updates, 4))) for updates in alone]
    planned = [update.sentences for update in first(alone[0], 4 + AHEAD)]  # those that are begun
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    drawn: list[list[int]] = [[], [], []]
    shared = {"barrier": threading.Barrier(3), "said": [None] * 3}

    def of_rank(rank: int) -> Any:
        updates = updates_of(tiny_data, name, rank, 3)
        for change in updates.plan.text_changes():
            vars(change)["text"] = partial(noted, drawn[rank], change.text)
        world = Talking(rank, 3, torch.device("cpu"), **shared)
        return list(map(as_lists, first(replace(updates, world=world), 4)))

    with ThreadPoolExecutor(3) as ranks:
        assert list(ranks.map(of_rank, range(3))) == expected
    if alone[0].plan.text_changes():
        for rank, numbers in enumerate(drawn):
            parts = [sentences[rank::3] for sentences in planned]
            assert numbers == np.concatenate(parts).tolist()


def noted(numbers: list[int], text: Any, epoch: int, sentences: Any, pairs: Any) -> Any:
    """Note which sentences are drawn."""
    numbers += sentences.tolist()
    return text(epoch, sentences, pairs)


def test_processes_draw_the_same_text(tiny_data: Path, name: str) -> None:
    """From the middle of an epoch on. None is left."""
    alone = updates_of(tiny_data, name, rank=1, ranks=2)
    if not alone.plan.text_changes():
        return
    before = set(multiprocessing.active_children())
    expected = first(alone, 5, epoch=1, position=2)
    drawn = first(replace(alone, drawing=2), 5, epoch=1, position=2)
    assert list(map(as_lists, drawn)) == list(map(as_lists, expected))
    assert set(multiprocessing.active_children()) == before


def test_a_killed_process_is_an_error(tiny_data: Path) -> None:
    before = set(multiprocessing.active_children())
    updates = replace(updates_of(tiny_data, "variants"), drawing=2)
    with updates.following(4, 0, 0) as following:
        next(following)
        for process in set(multiprocessing.active_children()) - before:
            process.kill()
        with pytest.raises(WorkerDied, match=r"a worker process died, .* with fewer CPU cores"):
            list(following)
    assert set(multiprocessing.active_children()) == before


def test_text_depends_on_epoch_and_sentence_alone(tiny_data: Path, name: str) -> None:
    updates = updates_of(tiny_data, name)

    def texts(numbers: list[int]) -> dict[int, Any]:
        chosen = np.array(numbers)
        pairs = updates.text(2, chosen)
        ids = [
            [pairs.ids(side, np.array([i]))[0].tolist() for side in SIDES]
            for i in range(len(numbers))
        ]
        lengths = zip(pairs.source_lengths.tolist(), pairs.target_lengths.tolist(), strict=True)
        assert [(len(source) + 1, len(target) + 1) for source, target in ids] == list(lengths)
        return dict(zip(numbers, ids, strict=True))

    several = texts([3, 1, 400, 7])
    for number, pair in several.items():
        assert texts([number]) == {number: pair}
    assert texts([400, 1]) == {400: several[400], 1: several[1]}
