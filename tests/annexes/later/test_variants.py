"""Variants depend on seed, epoch and sentence alone, and what is counted is what is trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_run
import torch

from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.annexes.later.settings import VariantsConfig
from nmt_cli.annexes.later.variants import Variants
from nmt_cli.annexes.parsing.task import ParsingConfig, ParsingTask
from nmt_cli.data.batching import BatchPlan
from nmt_cli.data.corpus import SIDES, Corpus, Pairs, PairsInMemory, selected
from nmt_cli.distributed import World
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import UNK, ragged
from nmt_cli.task import Task
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask
from nmt_cli.training.start import open_data
from nmt_cli.training.updates import Updates

NOISE = "upper=0.2,title=0.2,typos=0.3,no_final_stop=0.3"
BOTH = {"bpe_dropout": 0.2, "noise": "typos=0.3"}  # the numbers in words have no capitals


def variants(task: Task, seed: int = 1, **settings: Any) -> Variants:
    return Variants(VariantsConfig(**settings), task=task, seed=seed)


def opened(data: Path) -> tuple[Task, Corpus]:
    task, corpus, _ = open_data([str(data)])
    return task, corpus


def drawn(
    variants: Variants, pairs: Pairs, epoch: int, sentences: list[int]
) -> list[list[list[int]]]:
    numbers = np.array(sentences)
    return listed(variants.text(epoch, numbers, selected(pairs, numbers)), len(sentences))


def listed(pairs: Pairs, count: int) -> list[list[list[int]]]:
    return [[pairs.ids(side, np.array([i]))[0].tolist() for side in SIDES] for i in range(count)]


def test_they_depend_on_seed_epoch_and_sentence_alone(tiny_data: Path) -> None:
    task, corpus = opened(tiny_data)
    both_variants = variants(task, **BOTH)
    first = drawn(both_variants, corpus, 3, [5, 6, 7, 8])
    assert drawn(both_variants, corpus, 3, [8, 1, 6]) == [
        first[3],
        drawn(both_variants, corpus, 3, [1])[0],
        first[1],
    ]
    for other in (
        drawn(both_variants, corpus, 4, [5, 6, 7, 8]),
        drawn(variants(task, 2, **BOTH), corpus, 3, [5, 6, 7, 8]),
    ):
        assert other != first


def test_a_sampled_sentence_has_the_same_text(tiny_data: Path) -> None:
    task, corpus = opened(tiny_data)
    source, target = task.vocabularies()
    sentences = list(range(200))
    ids = drawn(variants(task, bpe_dropout=0.2), corpus, 0, sentences)
    plain = [[corpus.source(i).tolist(), corpus.target(i).tolist()] for i in sentences]
    texts = [[(source.decode(a), target.decode(b)) for a, b in pairs] for pairs in (ids, plain)]
    assert texts[0] == texts[1]
    assert sum(a != b for a, b in zip(ids, plain, strict=True)) > 100


def test_what_is_counted_is_what_is_trained_on(tiny_data: Path) -> None:
    """An update's tokens and micro-batches' weights are of the drawn sentences, on all ranks."""
    task, corpus = opened(tiny_data)
    lengths = corpus.source_lengths, corpus.target_lengths
    both_variants = variants(task, **BOTH)
    plan = BatchPlan(*lengths, 500, 1, changes=[both_variants])
    of_ranks = []
    for rank in range(3):
        world = World(rank, 3, torch.device("cpu"))
        with Updates(corpus, plan, world, micro_batches=4).following(4, 1, 2) as following:  # type: ignore[arg-type]
            of_ranks.append([next(following) for _ in range(3)])
    for rank_updates in zip(*of_ranks, strict=True):
        assert all(
            (a == b).all()
            for micro_batch in rank_updates
            for a, b in zip(micro_batch.lengths, rank_updates[0].lengths, strict=True)
        )
        drawn_here = both_variants.text(
            1, rank_updates[0].sentences, selected(corpus, rank_updates[0].sentences)
        )
        assert rank_updates[0].lengths[1].tolist() == drawn_here.target_lengths.tolist()
        batches = [
            micro_batch.batch
            for update in rank_updates
            for micro_batch in update.share
            if micro_batch.weight
        ]
        source, target = (int(lengths.sum()) for lengths in rank_updates[0].lengths)
        assert (sum(int((batch.source > 0).sum()) for batch in batches)) == source
        assert (
            sum(batch.num_tokens for batch in batches)
            == target
            > plan.target_tokens(rank_updates[0].sentences)
        )
        weights = [
            micro_batch.batch.num_tokens * micro_batch.weight
            for update in rank_updates
            for micro_batch in update.share
        ]
        assert sum(weights) == pytest.approx(1)


def test_a_run_with_both_resumes_bit_for_bit(tiny_data: Path, tmp_path: Path) -> None:
    for steps in (4, 8, 12):
        tiny_run.run(tiny_data, tmp_path / "parts", max_steps=steps, log_every=1, **BOTH)
    tiny_run.run(tiny_data, tmp_path / "whole", log_every=1, **BOTH)
    last = "checkpoints/step-00000012/"
    expected, resumed = (
        {k: v for k, v in contents(tmp_path / run).items() if last in k}
        for run in ("whole", "parts")
    )
    assert expected == resumed
    assert (
        tiny_run.metrics(tmp_path / "parts")[-1]["loss"]
        == tiny_run.metrics(tmp_path / "whole")[-1]["loss"]
    )


@pytest.fixture(scope="module")
def task() -> TranslationTask:
    new_task = TranslationTask(TranslationConfig("en", "de", vocab_size=14))
    new_task.learn([("ab AB.", "ab AB.")])
    return new_task


def test_a_pair_with_unknown_characters_stays_as_it_is(task: TranslationTask) -> None:
    source, target = task.vocabularies()
    texts = [("ab?", "ab"), ("ab", "a?b"), ("ab ab", "ab B."), ("b.", "ab")] * 25
    pairs = PairsInMemory(
        ragged([source.encode(a) for a, _ in texts]), ragged([target.encode(b) for _, b in texts])
    )
    ids = drawn(variants(task, bpe_dropout=0.5, noise=NOISE), pairs, 0, list(range(len(texts))))
    plain = [[source.encode(a), target.encode(b)] for a, b in texts]
    assert [UNK in a + b for a, b in ids] == [True, True, False, False] * 25
    assert all(a == b for i, (a, b) in enumerate(zip(ids, plain, strict=True)) if i % 4 < 2)
    decoded = {(source.decode(a), target.decode(b)) for a, b in ids[2::4]}
    assert {("ab ab", "ab B."), ("AB AB", "AB B."), ("ba ab", "ab B.")} <= decoded
    # A typo may give an unknown letter, such as the v beside the b. Then all of the pair stays.
    assert all(set(a + b) <= set("abAB .") for a, b in decoded)


def test_settings_that_do_not_fit(task: TranslationTask) -> None:
    unigram = TranslationTask(TranslationConfig("en", "de", subwords="unigram", vocab_size=10))
    unigram.learn([("ab ba aab", "bab aa")] * 9)
    words = TranslationTask(TranslationConfig("en", "de", subwords="none"))
    words.learn([("ab ba aab", "bab aa")])
    parsing = ParsingTask(ParsingConfig())
    for refused_task, settings, message in (
        (
            unigram,
            {"bpe_dropout": 0.1},
            "--bpe-dropout needs a vocabulary of --subwords bpe, this one is unigram: give --uni",
        ),
        (
            task,
            {"unigram_sampling": 0.1},
            "needs a vocabulary of --subwords unigram, this one is bpe: give --bpe-dropout",
        ),
        (words, {"bpe_dropout": 0.1}, "this one is none: leave it out"),
        (
            unigram,
            {"noise": "title=0.1"},
            "upper and title have no effect on lower-cased data; leave them out",
        ),
        (parsing, {"noise": "typos=0.1"}, "are for text, not for the task parsing"),
    ):
        with pytest.raises(UsageError) as refused:
            variants(refused_task, **settings)
        assert message in str(refused.value)
    variants(unigram, unigram_sampling=0.1, noise="typos=0.1")
