"""Sections 5.1, 5.2 and 6.1: batches, steps, and the spacing of checkpoints."""

from __future__ import annotations

import numpy as np
import pytest

from nmt_cli.config import RunConfig, resolve
from nmt_cli.data.batching import BatchPlan
from nmt_cli.registry import discover
from nmt_cli.training.settings import TrainingConfig


def config(preset: str) -> RunConfig:
    discover()
    return resolve(TrainingConfig, {}, preset=preset)


def test_a_batch_has_about_25000_source_and_25000_target_tokens() -> None:
    """Lengths are like WMT's: a long tail around 30 pieces."""
    random = np.random.default_rng(1)
    source = random.lognormal(3.25, 0.6, 40_000).astype(np.int64).clip(2, 250)
    target = (source * random.normal(1.05, 0.15, 40_000)).astype(np.int64).clip(2, 250)
    tokens = TrainingConfig().batch_tokens
    assert tokens == 25_000
    updates = list(BatchPlan(source, target, tokens, seed=1).epoch(0))[:-1]
    for lengths in (source, target):
        sizes = [int(lengths[update].sum()) for update in updates]
        assert max(sizes) <= 25_000
        assert np.mean(sizes) > 0.85 * 25_000


@pytest.mark.parametrize(
    ("preset", "steps", "seconds_a_step"),
    [("transformer_base", 100_000, 0.4), ("transformer_big", 300_000, 1.0)],
)
def test_steps_and_ten_minutes_between_checkpoints(
    preset: str, steps: int, seconds_a_step: float
) -> None:
    """Section 5.2: 100,000 and 300,000 steps of 0.4 and 1.0 seconds.

    Section 6.1: a checkpoint every 10 minutes.
    """
    training = config(preset).training
    assert training.max_steps == steps
    assert int(training.save_every) == 10 * 60 / seconds_a_step
    assert training.keep_last >= 20  # the big models average the last 20


def test_dropout_of_the_big_models() -> None:
    """Section 6.1: P_drop = 0.3 for EN-DE, 0.1 for EN-FR."""
    assert config("transformer_big")["model"].dropout == 0.3
    assert config("transformer_big_en_fr")["model"].dropout == 0.1
