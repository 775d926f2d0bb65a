"""The benchmark of training: its sentences, its processes and its report."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install .[bench]")

from benchmarks import training
from benchmarks.peers.serve import Size
from benchmarks.peers.training.serve import PAD, collate, sample
from benchmarks.samples import Sample
from benchmarks.synthetic import batches, equal_pairs, flops_of_token, random_pairs, write_corpus
from benchmarks.workers import System, started
from nmt_cli.data.corpus import Corpus

SIZE = Size(layers=1, width=16, inner=24, heads=2, vocabulary=50)


def test_sentences_are_spread_around_their_mean() -> None:
    pairs = random_pairs(2000, 50, mean=25)
    source, target = (np.array([len(pair[side]) for pair in pairs]) for side in (0, 1))
    assert abs(source.mean() - 25) < 2
    assert source.min() >= 3
    assert source.max() <= 100
    assert np.corrcoef(source, target)[0, 1] > 0.9
    assert {len(ids) for pair in equal_pairs(3, 7, 50) for ids in pair} == {7}


def test_batches_hold_at_most_their_tokens_with_padding() -> None:
    chosen = batches(random_pairs(500, 50), 200, 6)
    assert len(chosen) == 6
    for sources, targets in chosen:
        batch = collate(sources, targets)
        assert max(batch.source.numel(), batch.target_out.numel()) <= 200
        assert batch.tokens == int((batch.target_out != PAD).sum())
        assert batch.target_in.size() == batch.target_out.size()


def test_a_corpus_holds_the_pairs(tmp_path: Path) -> None:
    pairs = random_pairs(5, 50)
    write_corpus(tmp_path / "data", pairs, 50)
    corpus = Corpus.open(tmp_path / "data", "train")
    assert [(corpus.source(i).tolist(), corpus.target(i).tolist()) for i in range(5)] == pairs


def test_a_sample_has_whole_passes() -> None:
    assert sample(lambda: 7.0, 0.0)["amount"] == 7.0


def test_systems_train_on_the_batches() -> None:
    pairs = batches(random_pairs(60, SIZE.vocabulary, mean=8), 64, 3)
    setup = {**dataclasses.asdict(SIZE), "cores": 1, "tokens": 64, "pairs": pairs}
    systems = [System("nmt", "float32"), System("torch", "bfloat16"), System("products", "float32")]
    with started(systems, dict.fromkeys(("nmt", "torch", "products"), sys.executable), setup, training.PACKAGE) as (
        workers,
        absent,
    ):
        assert not absent
        samples = [worker.sample({}, 0, {"seconds": 0.0}) for worker in workers]
        assert [worker.system.name for worker in workers] == ["nmt float32", "torch bfloat16", "products float32"]
        assert samples[1].amount == sum(len(ids) + 1 for _, targets in pairs for ids in targets)
        assert 0 < samples[0].amount <= 2 * samples[1].amount
        assert samples[2].amount > 0
        assert all(worker.figures["memory"] > 1e6 for worker in workers)
        assert 0 <= workers[1].figures["padding"] < 0.5


def measured() -> training.Measured:
    case = {"model": "small", "tokens": 64}
    speeds = {
        "nmt float32": [6.0, 3.0, 9.0],
        "torch float32": [3.0, 1.0, 3.0],
        "products float32": [600.0, 300.0, 900.0],
    }
    samples = [Sample(case, system, r, rate, 1.0) for system, rates in speeds.items() for r, rate in enumerate(rates)]
    figures = {"padding": None, "waiting": 0.001, "memory": 2.5e9}
    own = {"nmt float32": figures, "torch float32": {**figures, "padding": 0.031, "waiting": None}}
    return training.Measured(case, samples, {}, {"gone": "gone: not installed"}, own, 50.0)


def test_a_section_has_speeds_shares_ratios_and_what_is_missing() -> None:
    text = "\n".join(training.section(measured(), "small"))
    assert "| nmt float32 | 6 (4.5-7.5) | 0.5 (0.5-0.5) |  | 0.1% | 2.50 |" in text
    assert "| torch float32 | 3 (2-3) | 0.167 (0.167-0.208) | 3.1% |  | 2.50 |" in text
    assert "| torch float32 | 3 (2.5-3) |" not in text.split("Ratio")[0]
    assert "Not measured: gone: not installed." in text


def test_the_operations_of_a_token_are_those_of_the_model() -> None:
    size = Size(layers=1, width=16, inner=24, heads=2, vocabulary=50)
    small = flops_of_token(size, [([5] * 9, [5] * 9)])
    larger = flops_of_token(dataclasses.replace(size, vocabulary=100), [([5] * 9, [5] * 9)])
    assert larger - small == 6 * 16 * 50
