"""The micro-batches of a rank."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nmt_cli.data.batching import BatchPlan
from nmt_cli.data.corpus import selected
from nmt_cli.distributed import World
from nmt_cli.training.start import open_data
from nmt_cli.training.updates import Updates


@pytest.mark.parametrize("sentences", [1, 2, 40])
def test_all_ranks_compute_equally_many(tiny_data: Path, sentences: int) -> None:
    """Each micro-batch has its weight on one rank.

    In what is divided, all ranks take part in each pass.
    """
    _, corpus, _ = open_data([str(tiny_data)])
    plan = BatchPlan(corpus.source_lengths, corpus.target_lengths, 500, 1)
    update = next(plan.epoch(0))[:sentences]
    pairs = selected(corpus, update)
    worlds = [World(rank, 3, torch.device("cpu")) for rank in range(3)]
    shares = [Updates(corpus, plan, world, micro_batches=4).share(pairs, 4) for world in worlds]
    assert len({len(micro_batch) for micro_batch in shares}) == 1
    weighted = [micro_batch for share in shares for micro_batch in share if micro_batch.weight]
    assert len({micro_batch.number for micro_batch in weighted}) == len(weighted)
    assert sum(
        micro_batch.batch.num_tokens * micro_batch.weight for micro_batch in weighted
    ) == pytest.approx(1)
