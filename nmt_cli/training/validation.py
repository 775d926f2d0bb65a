"""Loss and perplexity on the validation set."""

from __future__ import annotations

import math
from typing import Any

import torch

from nmt_cli.data.batching import sequential_batches
from nmt_cli.data.corpus import Corpus
from nmt_cli.device import World, autocast
from nmt_cli.interfaces import Criterion

_TOKENS = 4096  # per batch and side: small enough for any device that trains the model


def validate(model: Any, criterion: Criterion, corpus: Corpus, world: World, precision: str) -> dict[str, float]:
    """`validation_loss` (smoothed) and `validation_nll`, per token in nats, and `validation_perplexity`, per subword.

    The ranks share the sentences.
    """
    sums = torch.zeros(3, dtype=torch.float64, device=world.device)
    model.eval()
    with torch.no_grad(), autocast(world.device, precision):
        for number, batch in enumerate(sequential_batches(corpus, _TOKENS)):
            if number % world.size == world.rank:
                loss = criterion(model, batch.to(world.device))
                sums += torch.stack([loss.total.double(), loss.nll.double(), sums.new_tensor(loss.num_tokens)])
    model.train()
    total, nll, tokens = world.sum(sums).tolist()
    return {
        "validation_loss": total / tokens,
        "validation_nll": nll / tokens,
        "validation_perplexity": math.exp(min(nll / tokens, 700.0)),
    }
