"""The data types and protocols that components share.

Letters: B sentences, S source length, T target length, V vocabulary, N live hypotheses, d the width
of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    Lengths = NDArray[np.int64]
    # All ids, one sentence after the other, and the sentences' lengths.
    Ragged = tuple[NDArray[np.uint32], Lengths]

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Ids of padding, the unknown word, and begin and end of sentence, the same in every vocabulary."""

SPECIAL_SYMBOLS = ("<pad>", "<unk>", "<s>", "</s>")  # their symbols, in the order of their ids


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as ids, padded on the right with `PAD`. Masks are derived from the padding."""

    source: Tensor  # [B, S], each row ends in EOS
    target_in: Tensor  # [B, T], BOS and the target
    target_out: Tensor  # [B, T], the target and EOS
    num_tokens: int  # tokens of target_out without padding

    def to(self, device: Any) -> Batch:
        return self.map_tensors(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Batch:
        """Return the batch in page-locked memory, from which a GPU copies while it computes."""
        return self.map_tensors(lambda tensor: tensor.pin_memory())

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Return the batch with its tensors changed."""
        tensors = change(self.source), change(self.target_in), change(self.target_out)
        return Batch(*tensors, self.num_tokens)


@dataclass
class Loss:
    """Sums over target tokens. The trainer divides them once, by the tokens of the whole update."""

    total: Tensor  # scalar: the loss to minimise
    nll: Tensor  # scalar without gradient: negative log-likelihood in nats, for the perplexity
    num_tokens: int


@dataclass(frozen=True)
class Hypothesis:
    """One output: ids without BOS and EOS, and the length-normalised log-probability."""

    tokens: list[int]
    score: float
    # Log-probability of each token, and of EOS unless the output was cut off at its limit.
    token_scores: list[float]


@runtime_checkable
class DecoderState(Protocol):
    """The state of a model between two decoding steps, for N live hypotheses.

    Each of A sentences has W of them, at first one.
    """

    def select(self, rows: Tensor) -> DecoderState:
        """Return the state of the hypotheses `rows` [A, W], for A sentences with W hypotheses each.

        A hypothesis may be repeated or left out. A row of the matrix is of one sentence, and no
        sentence has two rows. This state must not be used any more: the new one may share its
        memory.
        """


@runtime_checkable
class Decodable(Protocol):
    """A model that a search can use, or an ensemble."""

    vocabulary_size: int

    def start(self, source: Tensor) -> DecoderState:
        """Encode `source` [B, S], padded rows that end in EOS. The state has B rows."""

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """The last ids `tokens` [N] -> log-probabilities [N, V] in float32, and the next state.

        `state` must not be used any more. The caller may change the log-probabilities in place.
        """


@runtime_checkable
class AddsLoss(Protocol):
    """A model, or any module in it, with an auxiliary loss, not attached to a token."""

    def added_loss(self) -> Tensor:
        """Return the term [] of the last forward pass in training mode.

        It is added to the mean loss of a token.
        """


class Criterion:
    """The training loss: the base class of the components of kind `criterion`."""

    refines = False  # whether only a trained model learns from it
    # Whether the rows of `outputs` may be in any order, and PAD a target that does not count.
    takes_bins = False
    # For how many tokens logits may exist at a time, where they are computed in chunks.
    logit_rows = 1024

    def __call__(self, model: Any, batch: Batch) -> Loss:
        """Return the sums over the target tokens of `batch`, without padding."""
        raise NotImplementedError

    def prepare(self, run: Any) -> None:
        """Called once, before training.

        Args:
            run: the `Run`, with the attributes model, task, corpus and plan.
        """

    def outputs(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return decoder outputs [N, d] and the target tokens [n] of the first n of them.

        A device may have a faster function in place of it.
        """
        hidden = model.decoder_output(batch.source, batch.target_in)  # [B, T, d]
        real = batch.target_out != PAD  # [B, T]
        return hidden[real], batch.target_out[real]


class Schedule(Protocol):
    """The learning rate, a pure function of the step.

    It may have the attributes `warmup_steps`, the step of the highest rate, and `decay_steps`.
    """

    def __call__(self, step: int) -> float:
        """Return the learning rate of `step`. The first step is 1."""


class Constraint(Protocol):
    """The tokens allowed next, for N hypotheses. It is immutable.

    The search starts with one row for each sentence. EOS is a token like any other: if it is never
    allowed, hypotheses end at the length limit.
    """

    def restrict(self, scores: Tensor) -> None:
        """Set `scores` [N, V] to -inf, in place, where a token may not follow.

        A hypothesis without any allowed token is dropped, or cut short if its sentence has no
        other.
        """

    def advance(self, rows: Tensor, tokens: Tensor) -> Constraint:
        """Return the constraint whose row i is this one's row `rows[i]` after `tokens[i]`.

        `rows` [N'] are as in `DecoderState.select`. A token that is not allowed must not raise: the
        search may fill up its beam with such hypotheses, and drops them.
        """


class Steps(Protocol):
    """A search in place of beam search, for a device that does steps of constant shapes."""

    @property
    def search(self) -> type[Any]:
        """A subclass of `Search`. Its attribute `inputs` is set before the first step."""

    def inputs(self, requests: Sequence[Any], steps: int) -> Tensor:
        """Return [B, steps, ...], what each step needs of the sentences of these requests."""


def ragged(sentences: Sequence[Sequence[int]]) -> Ragged:
    """Return the ids of all sentences in one array, and the number of ids in each sentence."""
    import numpy as np  # not at the top: `nmt --help` needs no numpy

    ids = np.fromiter(chain.from_iterable(sentences), np.uint32)
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    return ids, lengths
