"""The length of a training, by steps or epochs, and the models that are too large for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from nmt_cli.data.batching import BatchPlan
from nmt_cli.data.corpus import Part
from nmt_cli.data.sentences import Sentences
from nmt_cli.training import length
from nmt_cli.training.length import Length, length_of
from nmt_cli.training.settings import TrainingConfig


def plan(size: int, parts: Sequence[Part] = (), *changes: Sentences) -> BatchPlan:
    """Sentences of 10 target tokens, of which an update has 50."""
    return BatchPlan(np.full(size, 7), np.full(size, 10), 500, 1, parts, changes=changes)


@pytest.mark.parametrize(("max_epochs", "steps"), [(None, 30), (2, 20), (3, 30), (4, 30)])
def test_what_comes_first_ends_it(max_epochs: int | None, steps: int) -> None:
    length = length_of(plan(500), TrainingConfig(max_steps=30, max_epochs=max_epochs))
    assert length == Length(updates_per_epoch=10, target_tokens_per_update=500, steps=steps)
    assert (length.epochs, length.target_tokens) == (steps / 10, 5000)


def test_repeated_sentences_count() -> None:
    length = length_of(
        plan(500, [Part(0, 400, 1), Part(400, 500, 6)]), TrainingConfig(max_epochs=1)
    )
    assert (length.updates_per_epoch, length.steps) == (20, 20)


@pytest.mark.parametrize(
    ("settings", "steps", "epochs"),
    [
        ({"max_epochs": 5}, 2 * 20 + 3 * 5, 5),
        ({"max_epochs": 1}, 20, 1),
        ({"max_steps": 45}, 45, 3),
        ({"max_steps": 30}, 30, 1.5),
        ({"max_steps": 30, "max_epochs": 5}, 30, 1.5),
        ({"max_steps": 50, "max_epochs": 3}, 45, 3),
    ],
)
def test_stages_have_epochs_of_their_own_lengths(
    settings: dict[str, int], steps: int, epochs: float
) -> None:
    """Two epochs of 20 updates, and then of 5."""

    class Stages(Sentences):
        begins = (0, 2)

        def weights(self, epoch: int, weights: Sequence[float]) -> Sequence[float]:
            return [3 if epoch < 2 else 0, 1.0]

    staged = plan(500, [Part(0, 250, 1), Part(250, 500, 1)], Stages())
    length = length_of(staged, TrainingConfig(**settings))
    assert (length.steps, length.epochs) == (steps, pytest.approx(epochs))
    assert length.target_tokens_per_update == 500


def test_a_growing_batch_makes_more_updates_at_first() -> None:
    """Updates of 125, 250, 375 and 500 tokens have 12, 25, 37 and 50 sentences."""

    class Growth(Sentences):
        begins = range(4)

        def limit(self, epoch: int, limit: int) -> int:
            return limit * min(epoch + 1, 4) // 4

    growing = plan(500, (), Growth())
    updates_made = [len(list(growing.epoch(number))) for number in range(5)]
    assert updates_made == [42, 20, 14, 10, 10]
    assert length_of(growing, TrainingConfig(max_epochs=5)).steps == sum(updates_made)
    assert length_of(growing, TrainingConfig(max_steps=42 + 20)).epochs == 2


def test_of_a_large_corpus_it_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With sentences of all lengths, to a few percent of the exact number."""
    lengths = np.random.default_rng(1).integers(1, 60, 8000)
    corpus = BatchPlan(lengths, lengths, 500, 1)
    exact = length_of(corpus, TrainingConfig())
    assert exact.updates_per_epoch == len(list(corpus.epoch(0)))
    assert exact.target_tokens == pytest.approx(lengths.sum())
    monkeypatch.setattr(length, "SAMPLED_UPDATES", 200)
    estimated = length_of(corpus, TrainingConfig())
    assert estimated.updates_per_epoch == pytest.approx(exact.updates_per_epoch, rel=0.1)
    assert estimated.updates_per_epoch != exact.updates_per_epoch
