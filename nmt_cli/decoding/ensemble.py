"""Ensembles: the probabilities of several models are averaged at each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli.interfaces import Decodable, DecoderState


@dataclass(frozen=True)
class EnsembleState:
    """The states of the members, in order."""

    members: tuple[DecoderState, ...]

    def select(self, rows: Tensor) -> EnsembleState:
        """See `DecoderState`."""
        return EnsembleState(tuple(member.select(rows) for member in self.members))


class Ensemble:
    """A `Decodable` whose probabilities are the arithmetic mean over its members.

    The members have the same vocabulary.
    """

    def __init__(self, members: Sequence[Decodable]) -> None:
        self.members = tuple(members)
        self.vocabulary_size = members[0].vocabulary_size

    def start(self, source: Tensor) -> EnsembleState:
        """Encode `source` [B, S] with every member."""
        return EnsembleState(tuple(member.start(source) for member in self.members))

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, EnsembleState]:
        """The logarithm [N, V] of the mean probability after `tokens` [N], and the next state."""
        assert isinstance(state, EnsembleState)
        of_members = []
        next_states = []
        for member, member_state in zip(self.members, state.members, strict=True):
            of_member, next_state = member.step(tokens, member_state)
            of_members.append(of_member)
            next_states.append(next_state)
        log_probabilities = torch.stack(of_members)  # [members, N, V]
        mean = log_probabilities.logsumexp(dim=0) - math.log(len(self.members))
        return mean, EnsembleState(tuple(next_states))
