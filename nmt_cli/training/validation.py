"""Loss and perplexity on the validation set, and the measure by which a checkpoint is the best."""

from __future__ import annotations

import math
from typing import Any

import torch

from nmt_cli.data.batching import length_buckets, load_batch
from nmt_cli.data.corpus import Corpus
from nmt_cli.device import autocast
from nmt_cli.distributed import World, explain_lost_ranks
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import Criterion
from nmt_cli.task import Task
from nmt_cli.training.state import LOSS


def check_measure(measure: str, task: Task) -> None:
    if measure not in (own := [LOSS, *task.measures]):
        raise UsageError(f"--best-by {measure}: the task {task.name!r} has {' and '.join(own)}")


def validation_loss(
    model: Any, criterion: Criterion, corpus: Corpus, world: World, precision: str, tokens: int, packed: bool = False
) -> dict[str, float]:
    """Return the mean loss and nll per target token, in nats, and the perplexity; the ranks share the sentences.

    A batch has up to `tokens` on each side.
    """
    shares = length_buckets(corpus.source_lengths[:], corpus.target_lengths[:], tokens)
    sums = torch.zeros(3, dtype=torch.float64, device=world.device)
    model.eval()
    repeated = shares[:1] * (-len(shares) % world.size)  # so that all ranks make as many passes
    with torch.no_grad(), autocast(world.device, precision), explain_lost_ranks(computing=True):
        for number, indices in list(enumerate(shares + repeated))[world.rank :: world.size]:
            loss = criterion(model, load_batch(corpus, indices, packed).to(world.device))
            if number < len(shares):
                sums += torch.stack([loss.total.double(), loss.nll.double(), sums.new_tensor(loss.num_tokens)])
    model.train()
    total, nll, count = world.start_sum(sums)()
    return {
        "validation_loss": total / count,
        "validation_nll": nll / count,
        "validation_perplexity": perplexity(nll / count),
    }


def perplexity(nll: float) -> float:
    """Return exp(nll), bounded so that it is finite."""
    return math.exp(min(nll, 700.0))
