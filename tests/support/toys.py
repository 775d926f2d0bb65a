"""A recurrent model small enough to enumerate its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from nmt_cli.interfaces import EOS, PAD

WIDTH = 5


@dataclass
class ToyState:
    """Insists that a search uses a state once, and keeps a sentence's hypotheses in one row."""

    hidden: Tensor  # [N, WIDTH]
    width: int = 1  # hypotheses of each sentence
    used: bool = False

    def use(self) -> None:
        assert not self.used
        self.used = True

    def select(self, rows: Tensor) -> ToyState:
        self.use()
        sentences = rows // self.width
        assert (sentences == sentences[:, :1]).all()
        assert len(sentences[:, 0].unique()) == len(rows)
        return ToyState(self.hidden[rows.flatten()], rows.size(1))


class Toy:
    """A recurrent network with random weights. Its first state is the sum of the embeddings."""

    def __init__(self, vocabulary_size: int, seed: int, sharpness: float = 2.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.vocabulary_size = vocabulary_size
        self.embedding = torch.randn(
            vocabulary_size, WIDTH, generator=generator, dtype=torch.float64
        )
        self.recurrent = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
        self.output = sharpness * torch.randn(
            WIDTH, vocabulary_size, generator=generator, dtype=torch.float64
        )
        self.rows_seen: list[int] = []

    def start(self, source: Tensor) -> ToyState:
        embedded = self.embedding[source] * (source != PAD).unsqueeze(2)
        return ToyState(torch.tanh(embedded.sum(dim=1)))

    def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        state.use()
        self.rows_seen.append(len(tokens))
        hidden = torch.tanh(state.hidden @ self.recurrent + self.embedding[tokens])
        return (hidden @ self.output).log_softmax(dim=1).float(), ToyState(hidden, state.width)


@pytest.fixture(scope="session")
def toy() -> Callable[..., Toy]:
    return Toy


@pytest.fixture(scope="session")
def padded() -> Callable[[Sequence[Sequence[int]], int], Tensor]:
    """Rows of ids, an EOS added to each, padded to the longest and `extra` columns more."""

    def pad(rows: Sequence[Sequence[int]], extra: int = 0) -> Tensor:
        width = max(map(len, rows)) + 1 + extra
        return torch.tensor([[*row, EOS] + [PAD] * (width - 1 - len(row)) for row in rows])

    return pad
