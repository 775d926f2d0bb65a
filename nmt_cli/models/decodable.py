"""A model as a search uses it: one target position at a time, with products in float32 or bfloat16.

Letters: A sentences, W hypotheses of each, N = A * W rows, B sentences, S source length, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from nmt_cli.device import autocast
from nmt_cli.errors import UsageError


@dataclass(frozen=True)
class TensorState:
    """The state of a decoder between two steps, as tensors."""

    source: tuple[Tensor, ...]  # of each sentence: [A, ...]
    target: tuple[Tensor, ...]  # of each hypothesis: [N, ...]
    length: int = 0  # target positions so far

    def select(self, rows: Tensor) -> TensorState:
        """See `DecoderState`."""
        sentences, hypotheses = len(self.source[0]), len(self.target[0])
        chosen = rows[:, 0].div(hypotheses // sentences, rounding_mode="floor")
        unchanged = len(chosen) == sentences and bool((chosen[1:] > chosen[:-1]).all())
        source = self.source if unchanged else tuple(part[chosen] for part in self.source)
        return TensorState(source, tuple(part[rows.flatten()] for part in self.target), self.length)


class Steps(Protocol):
    """A model that computes one target position at a time."""

    vocabulary_size: int

    def start(self, source: Tensor) -> TensorState:
        """Encode `source` [B, S] (padded, each row ends in EOS); the state has B rows."""

    def step(self, tokens: Tensor, state: TensorState) -> tuple[Tensor, TensorState]:
        """Go on from `state` with the ids `tokens` [N]: the logits [N, V] of what follows, and the next state."""


class PlainDecodable:
    """A `Decodable` with the weights of `model`, which is in evaluation mode.

    Raises:
        UsageError: `dtype` is int8.
    """

    def __init__(self, model: Steps, dtype: str = "float32") -> None:
        if dtype == "int8":
            raise UsageError(f"--dtype int8: a {type(model).__name__} decodes in float32 or bfloat16")
        self.vocabulary_size = model.vocabulary_size
        self._model, self._dtype = model, dtype

    @torch.no_grad()
    def start(self, source: Tensor) -> TensorState:
        """See `Decodable`."""
        with autocast(source.device, self._dtype):
            return self._model.start(source)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, TensorState]:
        """See `Decodable`."""
        with autocast(tokens.device, self._dtype):
            logits, state = self._model.step(tokens, state)
        return logits.float().log_softmax(1), state
