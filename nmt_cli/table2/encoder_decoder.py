"""Base class of encoder-decoders with a decoder state of fixed size: recurrent and convolutional ones.

Letters: A sentences, W hypotheses of each, N = A * W rows, B sentences, S source length, T target length, V vocabulary,
d_model width of the decoder's output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.device import autocast
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import DecoderState
from nmt_cli.registry import component_of


@dataclass(frozen=True)
class FixedState:
    """The state of a decoder between two steps, as tensors."""

    source: tuple[Tensor, ...]  # of each sentence: [A, ...]
    target: tuple[Tensor, ...]  # of each hypothesis: [N, ...]

    def select(self, rows: Tensor) -> FixedState:
        """See `DecoderState`."""
        sentences, hypotheses = len(self.source[0]), len(self.target[0])
        chosen = rows[:, 0].div(hypotheses // sentences, rounding_mode="floor")
        unchanged = len(chosen) == sentences and bool((chosen[1:] > chosen[:-1]).all())
        source = self.source if unchanged else tuple(each[chosen] for each in self.source)
        return FixedState(source, tuple(each[rows.flatten()] for each in self.target))


class EncoderDecoder(nn.Module, ABC):
    """A `Model` that has embeddings and an output layer; a subclass adds what is between them.

    Args:
        d_model: width of the decoder's output.
        tied: one matrix for the target embedding and the output layer, and for the source if the vocabulary is shared.
            Without it there are three matrices.
        d_embedding: width of the embeddings; None is `d_model`, as tied embeddings have it.
        attention: configuration of the kernel of self-attention, of which these models have none.
        source_vocabulary_size, target_vocabulary_size: V of each side.
        shared_vocabulary: whether the ids of both sides mean the same.

    Raises:
        UsageError: another kernel of self-attention than the default is asked for.
    """

    def __init__(
        self,
        d_model: int,
        tied: bool,
        *,
        d_embedding: int | None = None,
        attention: Any,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        shared_vocabulary: bool,
    ) -> None:
        super().__init__()
        if (kernel := component_of(attention).name) != "full":
            raise UsageError(
                f"--attention {kernel} cannot be used with {type(self).__name__}: it has no self-attention"
            )
        self.vocabulary_size = target_vocabulary_size
        width = d_embedding or d_model
        self.target_embedding = nn.Embedding(target_vocabulary_size, width)
        self.source_embedding = (
            self.target_embedding if tied and shared_vocabulary else nn.Embedding(source_vocabulary_size, width)
        )
        self.output = self.target_embedding if tied else nn.Linear(d_model, target_vocabulary_size, bias=False)

    @property
    def output_weight(self) -> Tensor:
        """The projection [V, d_model] to the vocabulary."""
        return self.output.weight

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Logits [B, T, V] of each next token."""
        return F.linear(self.decoder_output(source, target_in), self.output_weight)

    def parts(self) -> dict[str, list[Any]]:
        """See `HasParts`."""
        return {"embeddings": [self.source_embedding, self.target_embedding]}

    @abstractmethod
    def decoder_output(self, source: Tensor, target_in: Tensor) -> Tensor:
        """The hidden states [B, T, d_model], which the output weight projects to logits."""

    @abstractmethod
    def start(self, source: Tensor) -> FixedState:
        """Encode `source` [B, S] (padded, each row ends in EOS); the state has B rows."""

    @abstractmethod
    def next_output(self, tokens: Tensor, state: FixedState) -> tuple[Tensor, FixedState]:
        """One step: the last ids `tokens` [N] -> the hidden state [N, d_model] of the next, and the next state."""

    def decodable(self, dtype: str = "float32") -> EncoderDecoderInference:
        """See `Model`."""
        return EncoderDecoderInference(self, dtype)


class EncoderDecoderInference:
    """A `Decodable` with the weights of `model`.

    Args:
        model: in evaluation mode.
        dtype: of the matrix products: float32 or bfloat16.

    Raises:
        UsageError: `dtype` is int8.
    """

    def __init__(self, model: EncoderDecoder, dtype: str) -> None:
        if dtype == "int8":
            raise UsageError(f"--dtype int8: a {type(model).__name__} decodes in float32 or bfloat16")
        self.vocabulary_size = model.vocabulary_size
        self._model, self._dtype = model, dtype

    @torch.no_grad()
    def start(self, source: Tensor) -> FixedState:
        """See `Decodable`."""
        with autocast(source.device, self._dtype):
            return self._model.start(source)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, FixedState]:
        """See `Decodable`."""
        assert isinstance(state, FixedState)
        with autocast(tokens.device, self._dtype):
            hidden, after = self._model.next_output(tokens, state)
            logits = F.linear(hidden, self._model.output_weight)
        return logits.float().log_softmax(1), after
