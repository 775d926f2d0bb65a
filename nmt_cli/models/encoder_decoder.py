"""Base class of encoder-decoders with a decoder state of fixed size: recurrent and convolutional ones.

Letters: A sentences, W hypotheses of each, N = A * W rows, B sentences, S source length, T target length, V vocabulary,
d_model width of the decoder's output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.device import autocast
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import DecoderState, with_backward
from nmt_cli.registry import component_of

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


@dataclass(frozen=True)
class FixedSizeState:
    """The state of a decoder between two steps, as tensors."""

    source: tuple[Tensor, ...]  # of each sentence: [A, ...]
    target: tuple[Tensor, ...]  # of each hypothesis: [N, ...]
    length: int = 0  # target positions so far

    def select(self, rows: Tensor) -> FixedSizeState:
        """See `DecoderState`."""
        sentences, hypotheses = len(self.source[0]), len(self.target[0])
        chosen = rows[:, 0].div(hypotheses // sentences, rounding_mode="floor")
        unchanged = len(chosen) == sentences and bool((chosen[1:] > chosen[:-1]).all())
        source = self.source if unchanged else tuple(each[chosen] for each in self.source)
        return FixedSizeState(source, tuple(each[rows.flatten()] for each in self.target), self.length)


class Decoded(NamedTuple):
    """What a decoder computes for T positions of each hypothesis."""

    hidden: Tensor  # [N, T, d_model], which the output weight projects to logits
    weights: Sequence[Tensor]  # of each attention: [A, N / A * T, S]
    target: Sequence[Tensor]  # the target part of the next state


class EncoderDecoder(nn.Module, ABC):
    """A `Model` that has embeddings and an output layer; a subclass adds what is between them.

    Args:
        tied: one matrix for the target embedding and the output layer, and for the source if the vocabulary is shared.
            Without it there are three matrices.
        d_embedding: width of the embeddings; None is `d_model`, as tied embeddings have it.
        attention: configuration of the kernel of self-attention, which these models do not have.

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

    def training_flops(self, source_lengths: Lengths, target_lengths: Lengths) -> dict[str, float]:
        """See `CountsFlops`. Matrix products only; a multiply-add is two operations."""
        S, T, pairs = (float(each.sum()) for each in (source_lengths, target_lengths, source_lengths * target_lengths))
        products = self.products(S, T, pairs) | {"output layer": T * self.output_weight.numel()}
        return with_backward({part: 2 * count for part, count in products.items()})

    @abstractmethod
    def products(self, S: float, T: float, pairs: float) -> dict[str, float]:
        """Multiply-adds of a forward pass by part, for S source and T target tokens; `pairs` adds up S * T."""

    @abstractmethod
    def start(self, source: Tensor) -> FixedSizeState:
        """Encode `source` [B, S] (padded, each row ends in EOS); the state has B rows."""

    @abstractmethod
    def decode(self, target_in: Tensor, state: FixedSizeState) -> Decoded:
        """Go on from `state` with the ids [N, T] that follow: all of a target in training, or the last one."""

    def decoder_output(self, source: Tensor, target_in: Tensor) -> Tensor:
        """See `Model`."""
        return self.decode(target_in, self.start(source)).hidden

    def decodable(self, dtype: str = "float32") -> EncoderDecoderInference:
        """See `Model`."""
        return EncoderDecoderInference(self, dtype)


class AttentiveEncoderDecoder(EncoderDecoder):
    """An `EncoderDecoder` that attends to the source."""

    @torch.inference_mode()
    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """See `ShowsAttention`."""
        weights = self.decode(target_in, self.start(source)).weights  # one head
        return {"cross": torch.stack([*weights], dim=1).unsqueeze(2)}


def elements(*modules: Any) -> int:
    """The elements of the matrices of `modules`: each position meets each of them once."""
    named = (each for module in modules for each in module.named_parameters())
    # original0 is the gains of weight normalisation.
    return sum(weight.numel() for name, weight in named if weight.dim() == 2 and not name.endswith("original0"))


class EncoderDecoderInference:
    """A `Decodable` with the weights of `model`, in evaluation mode; its products are in float32 or bfloat16."""

    def __init__(self, model: EncoderDecoder, dtype: str) -> None:
        if dtype == "int8":
            raise UsageError(f"--dtype int8: a {type(model).__name__} decodes in float32 or bfloat16")
        self.vocabulary_size = model.vocabulary_size
        self._model, self._dtype = model, dtype

    @torch.no_grad()
    def start(self, source: Tensor) -> FixedSizeState:
        """See `Decodable`."""
        with autocast(source.device, self._dtype):
            return self._model.start(source)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, FixedSizeState]:
        """See `Decodable`."""
        assert isinstance(state, FixedSizeState)
        with autocast(tokens.device, self._dtype):
            hidden, _, target = self._model.decode(tokens[:, None], state)
            logits = F.linear(hidden.squeeze(1), self._model.output_weight)
        return logits.float().log_softmax(1), FixedSizeState(state.source, tuple(target), state.length + 1)
