"""Base class of encoder-decoders with a decoder state of fixed size, recurrent or convolutional.

Letters: A sentences, W hypotheses of each, N = A * W rows, B sentences, S source length, T target
length, V vocabulary, d_model width of the decoder's output.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.errors import UsageError
from nmt_cli.model import Model, TensorState
from nmt_cli.registry import component_of

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


class Decoded(NamedTuple):
    """What a decoder computes for T positions of each hypothesis."""

    hidden: Tensor  # [N, T, d_model], which the output weight projects to logits
    weights: Sequence[Tensor]  # of each attention: [A, N / A * T, S]
    target: Sequence[Tensor]  # the target part of the next state


class EncoderDecoder(Model):
    """A `Model` that has embeddings and an output layer. A subclass adds what is between them.

    Args:
        tied: one matrix for the target embedding and the output layer, and for the source if the
            vocabulary is shared. Without it there are three matrices.
        d_embedding: width of the embeddings. By default it is `d_model`, as tied embeddings need.
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
        kernel = component_of(attention).name
        if kernel != "full":
            raise UsageError(
                f"--attention {kernel} cannot be used with {type(self).__name__}: it has no "
                "self-attention"
            )
        self.vocabulary_size = target_vocabulary_size
        width = d_embedding or d_model
        self.target_embedding = nn.Embedding(target_vocabulary_size, width)
        if tied and shared_vocabulary:
            self.source_embedding = self.target_embedding
        else:
            self.source_embedding = nn.Embedding(source_vocabulary_size, width)
        self.output: nn.Embedding | nn.Linear
        if tied:
            self.output = self.target_embedding
        else:
            self.output = nn.Linear(d_model, target_vocabulary_size, bias=False)

    @property
    def output_weight(self) -> Tensor:
        """The projection [V, d_model] to the vocabulary."""
        return self.output.weight

    def parts(self) -> dict[str, list[Any]]:
        """See `Model`."""
        return {"embeddings": [self.source_embedding, self.target_embedding]}

    def training_flops(self, source_lengths: Lengths, target_lengths: Lengths) -> dict[str, float]:
        """See `Model`. Only matrix products count."""
        S = float(source_lengths.sum())
        T = float(target_lengths.sum())
        pairs = float((source_lengths * target_lengths).sum())
        products = dict(self.products(S, T, pairs))
        products["output layer"] = T * self.output_weight.numel()
        # A multiply-add is two operations, and the backward pass has two products for each.
        return {part: 6 * count for part, count in products.items()}

    def products(self, S: float, T: float, pairs: float) -> dict[str, float]:
        """Multiply-adds of a forward pass by part, for S source and T target tokens.

        By default, the matrices of the parts `encoder` and `decoder` are counted.

        Args:
            pairs: the sum of S * T of all sentence pairs.
        """
        parts = self.parts()
        return {
            "encoder": S * elements(*parts.get("encoder", ())),
            "decoder": T * elements(*parts.get("decoder", ())),
        }

    @abstractmethod
    def decode(self, target_in: Tensor, state: TensorState) -> Decoded:
        """Go on from `state` with the ids [N, T] that follow.

        In training they are all ids of the target, and in a decoding step the last one.
        """

    def decoder_output(self, source: Tensor, target_in: Tensor) -> Tensor:
        """See `Model`."""
        return self.decode(target_in, self.start(source)).hidden

    def step(self, tokens: Tensor, state: TensorState) -> tuple[Tensor, TensorState]:
        """See `Model`."""
        decoded = self.decode(tokens[:, None], state)
        logits = F.linear(decoded.hidden.squeeze(1), self.output_weight)  # [N, V]
        return logits, TensorState(state.source, tuple(decoded.target), state.length + 1)


class AttentiveEncoderDecoder(EncoderDecoder):
    """An `EncoderDecoder` that attends to the source."""

    @torch.inference_mode()
    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """See `Model`."""
        weights = self.decode(target_in, self.start(source)).weights
        of_layers = torch.stack([*weights], dim=1)  # [B, layers, T, S]
        return {"cross": of_layers.unsqueeze(2)}  # one head


def elements(*modules: Any) -> int:
    """Return the number of elements of all matrices in `modules`: multiply-adds for a token."""
    count = 0
    for module in modules:
        for name, weight in module.named_parameters():
            is_gain = name.endswith("original0")  # of weight normalisation
            if weight.dim() == 2 and not is_gain:
                count += weight.numel()
    return count
