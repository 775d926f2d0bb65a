"""The check of a model's probabilities that search, sampling and scoring share."""

from __future__ import annotations

from torch import Tensor

from nmt_cli.errors import CheckpointError


def check_probabilities(values: Tensor) -> None:
    """Raise CheckpointError if one of these probabilities of a model, or of their logarithms, is NaN."""
    if values.isnan().any():
        raise CheckpointError(
            "the model's probabilities are not numbers (NaN): its weights are damaged, or training diverged; "
            "use an earlier checkpoint"
        )
