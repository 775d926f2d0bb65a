"""What search, sampling and scoring do with a model's probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt_cli.decoding.options import SearchOptions
from nmt_cli.errors import CheckpointError
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, Constraint


def check_probabilities(values: Tensor) -> None:
    """Raise CheckpointError if one of these probabilities of a model, or of their logarithms, is NaN."""
    if values.isnan().any():
        raise CheckpointError(
            "the model's probabilities are not numbers (NaN): its weights are damaged, or training diverged; "
            "use an earlier checkpoint"
        )


def restrict(log_probabilities: Tensor, length: int, options: SearchOptions, constraint: Constraint | None) -> None:
    """Set `log_probabilities` [N, V] to -inf, in place, where a token may not be the one at `length`, from 1."""
    if constraint is not None:
        constraint.restrict(log_probabilities)
    never = [PAD, BOS] if options.unknown else [PAD, BOS, UNK]
    for token in never if length > options.min_length else [*never, EOS]:
        log_probabilities[:, token] = -torch.inf
