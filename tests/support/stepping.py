"""A model of a search, run step by step on one sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nmt_cli.interfaces import BOS


def token_log_probabilities(model: Any, source: Tensor, tokens: list[int]) -> list[float]:
    """log p of each of `tokens`, by running the model on this one sequence, `source` [1, S]."""
    state, last, result = model.start(source), BOS, []
    for token in tokens:
        log_probabilities, state = model.step(torch.tensor([last]), state)
        result.append(log_probabilities[0, token].item())
        last = token
    return result
