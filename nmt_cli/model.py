"""Models: the base class, and a model as a search uses it, one target position at a time.

Letters: A sentences, W hypotheses of each, N = A * W rows, B sentences, S source length, T target
length, H heads, V vocabulary, d width of the decoder's output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.device import autocast
from nmt_cli.errors import UsageError

if TYPE_CHECKING:
    from nmt_cli.interfaces import Decodable, Lengths


@dataclass(frozen=True)
class TensorState:
    """The state of a decoder between two steps, as tensors."""

    source: tuple[Tensor, ...]  # of each sentence: [A, ...]
    target: tuple[Tensor, ...]  # of each hypothesis: [N, ...]
    length: int = 0  # target positions so far

    def select(self, rows: Tensor) -> TensorState:
        """See `DecoderState`."""
        A, N = len(self.source[0]), len(self.target[0])
        sentences = rows[:, 0].div(N // A, rounding_mode="floor")
        source = self.source
        # The source parts are large, and most steps drop no sentence.
        all_in_order = len(sentences) == A and bool((sentences[1:] > sentences[:-1]).all())
        if not all_in_order:
            source = tuple(part[sentences] for part in source)
        hypotheses = rows.flatten()
        target = tuple(part[hypotheses] for part in self.target)
        return TensorState(source, target, self.length)


class Model(nn.Module, ABC):
    """The base class of the components of kind `model`.

    A subclass has `output_weight`, `decoder_output`, and `start` and `step` or a `decodable` of its
    own. The other methods are optional.
    """

    vocabulary_size: int  # V of the target

    def __init__(self) -> None:
        super().__init__()
        self.output_bias: Tensor | None = None  # [V], of the logits

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """The projection [V, d]: logits = decoder output x output_weight^T + output_bias."""

    @abstractmethod
    def decoder_output(self, source: Tensor, target_in: Tensor) -> Tensor:
        """The hidden states [B, T, d] of all target positions, of which the logits are made."""

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Logits [B, T, V] of each next token."""
        hidden = self.decoder_output(source, target_in)  # [B, T, d]
        return F.linear(hidden, self.output_weight, self.output_bias)

    def start(self, source: Tensor) -> TensorState:
        """Encode `source` [B, S], padded rows that end in EOS. The state has B rows."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: TensorState) -> tuple[Tensor, TensorState]:
        """The last ids `tokens` [N] -> logits [N, V] of what follows, and the next state."""
        raise NotImplementedError

    def decodable(self, dtype: str = "float32") -> Decodable:
        """Return the model for decoding, with the weights that it has now.

        Args:
            dtype: of products with weights, float32, bfloat16, float16 or int8.

        Raises:
            UsageError: the model or its device cannot use this `dtype`.
        """
        return PlainDecodable(self, dtype)

    def parts(self) -> Mapping[str, Sequence[nn.Module]]:
        """Return the modules of each part for `nmt train --freeze`.

        Usual parts are `embeddings`, `encoder` and `decoder`.
        """
        return {}

    def stacks(self) -> Sequence[Any]:
        """Return the stacks of layers. A GPU compiles the layers of each.

        A stack has an attribute `recompute`, which `nmt train --gradient-checkpointing` sets.
        """
        return []

    @property
    def shows_attention(self) -> bool:
        """Whether the model has `attention_weights`: `nmt attention` and `--alignments` need it."""
        return type(self).attention_weights is not Model.attention_weights

    def attention_weights(self, source: Tensor, target_in: Tensor) -> Mapping[str, Tensor]:
        """Return the weights in evaluation mode: `source` is [B, S], `target_in` [B, T].

        The keys are `encoder` [B, layers, H, S, S], `decoder` [B, layers, H, T, T] and `cross` [B,
        layers, H, T, S], as far as the model has them. The rows of padding mean nothing.
        """
        raise NotImplementedError

    def training_flops(
        self, source_lengths: Lengths, target_lengths: Lengths
    ) -> Mapping[str, float]:
        """Operations of a forward and a backward pass, by part, for pairs of these lengths.

        They are for costs and utilisation. A model that does not count them returns none.
        """
        return {}


class PlainDecodable:
    """A `Decodable` with the weights of `model`, which is in evaluation mode.

    Raises:
        UsageError: `dtype` is int8.
    """

    def __init__(self, model: Model, dtype: str = "float32") -> None:
        if dtype == "int8":
            raise UsageError(
                f"--dtype int8: a {type(model).__name__} decodes in float32 or bfloat16"
            )
        self.vocabulary_size = model.vocabulary_size
        self._model = model
        self._dtype = dtype

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
