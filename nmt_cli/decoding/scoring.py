"""Log-probabilities of given targets: one pass over whole sentences, as in training, in place of a search.

Letters: B sentences, T target length, V vocabulary, M models, d their width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt_cli.data.batching import collate, length_buckets
from nmt_cli.decoding.beam_search import check_probabilities
from nmt_cli.device import in_halves
from nmt_cli.interfaces import PAD, Batch, Model, output_bias_of

ROWS = 512  # rows of the logits [ROWS, V] that exist at a time

Ids = Sequence[int]


@dataclass(frozen=True)
class TargetScore:
    """The log-probability (natural) of a given target. An empty target has one token, the end of the sentence."""

    source: str
    target: str
    tokens: list[str]  # the subwords of the target
    token_scores: list[float]  # log-probability of each, and of EOS unless the target was cut
    source_truncated: bool  # the line was longer than `max_source_length`
    target_truncated: bool

    @property
    def score(self) -> float:
        """The sum over the tokens, not normalised by their number."""
        return math.fsum(self.token_scores)


@torch.inference_mode()
def token_log_probabilities(
    models: Sequence[Model],
    sources: Sequence[Ids],
    targets: Sequence[Ids],
    device: torch.device,
    batch_tokens: int,
    advance: Callable[[Sequence[int]], None] = lambda positions: None,
) -> list[list[float]]:
    """Return the log-probability of each token of each target, and of the end of the sentence after them.

    The probabilities of several models are averaged at each token, as in `Ensemble`. The result of a pair does not
    depend on the others, up to rounding.

    Args:
        models: in evaluation mode, on `device`.
        sources, targets: ids without BOS and EOS; both may be empty.
        batch_tokens: maximum source tokens, and target tokens, in a batch, padding included.
        advance: called with the positions of the pairs scored since the last call.

    Raises:
        CheckpointError: a probability is NaN.
        NmtError: one pair does not fit in memory.
    """

    def scores_of(positions: Sequence[int]) -> list[list[float]]:
        batch = collate([sources[i] for i in positions], [targets[i] for i in positions])
        return _batch_scores(models, batch.to(device))

    def too_large(position: int) -> str:
        lengths = f"a source of {len(sources[position])} and a target of {len(targets[position])} tokens"
        return f"out of memory on {lengths}: use a smaller max_source_length"

    results: list[list[float]] = [[] for _ in targets]
    S, T = (np.array([len(ids) + 1 for ids in side], dtype=np.int64) for side in (sources, targets))
    for bucket in reversed(length_buckets(S, T, batch_tokens)):  # the longest first
        positions = bucket.tolist()
        for i, scores in zip(positions, in_halves(scores_of, positions, too_large), strict=True):
            results[i] = scores
        advance(positions)
    return results


def _batch_scores(models: Sequence[Model], batch: Batch) -> list[list[float]]:
    real = batch.target_out != PAD  # [B, T]
    ids = batch.target_out[real]  # [tokens]
    hidden = ((model, model.decoder_output(batch.source, batch.target_in)[real]) for model in models)
    each = torch.stack([log_probabilities_of(ids, rows, model) for model, rows in hidden])  # [M, tokens]
    mean = each.logsumexp(dim=0) - math.log(len(models))
    check_probabilities(mean)
    return [scores.tolist() for scores in torch.split(mean.clamp(max=0.0), real.sum(dim=1).tolist())]


def log_probabilities_of(ids: Tensor, hidden: Tensor, model: Model, never: Sequence[int] = ()) -> Tensor:
    """Return the log-probability [N] of each of `ids` [N] by the model's `hidden` [N, d] before it.

    Args:
        never: ids without probability; the probabilities of the others sum to 1.
    """
    parts = []
    for rows, targets in zip(torch.split(hidden, ROWS), torch.split(ids, ROWS), strict=True):
        logits = F.linear(rows, model.output_weight, output_bias_of(model)).float()  # [ROWS, V]
        logits[:, list(never)] = -torch.inf
        parts.append(F.cross_entropy(logits, targets, reduction="none"))
    return -torch.cat(parts)
