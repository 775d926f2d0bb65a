"""Ensembles: the probabilities of several models are averaged at each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli.errors import CheckpointError
from nmt_cli.interfaces import Decodable, DecoderState


@dataclass(frozen=True)
class EnsembleState:
    """The states of the members, in order."""

    members: tuple[DecoderState, ...]

    def select(self, rows: Tensor) -> EnsembleState:
        """See `DecoderState`."""
        return EnsembleState(tuple(member.select(rows) for member in self.members))


class Ensemble:
    """A `Decodable` whose probabilities are the arithmetic mean of those of its members.

    Raises:
        CheckpointError: the vocabularies of the members differ in size.
    """

    def __init__(self, members: Sequence[Decodable]) -> None:
        sizes = [member.vocabulary_size for member in members]
        if len(set(sizes)) > 1:
            listed = ", ".join(map(str, sizes))
            raise CheckpointError(f"these models cannot be an ensemble: their vocabularies differ in size ({listed})")
        self.members = tuple(members)
        self.vocabulary_size = sizes[0]

    def start(self, source: Tensor) -> EnsembleState:
        """Encode `source` [B, S] with every member."""
        return EnsembleState(tuple(member.start(source) for member in self.members))

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, EnsembleState]:
        """The logarithm [N, V] of the mean probability after `tokens` [N], and the next state."""
        assert isinstance(state, EnsembleState)
        steps = [member.step(tokens, its) for member, its in zip(self.members, state.members, strict=True)]
        log_probabilities = torch.stack([step[0] for step in steps])  # [members, N, V]
        mean = log_probabilities.logsumexp(dim=0) - math.log(len(steps))
        return mean, EnsembleState(tuple(step[1] for step in steps))
