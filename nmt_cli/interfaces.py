"""What passes between the rooms of the house: the data types and the protocols.

Letters: B sentences, S source length, T target length, V vocabulary, N live hypotheses, d the model's width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""The ids of padding, unknown, begin and end of sentence: the same in every vocabulary of this project."""

SPECIAL_SYMBOLS = ("<pad>", "<unk>", "<s>", "</s>")
"""Their written forms, in the order of their ids."""


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as ids, padded on the right with `PAD`; every mask follows from the padding."""

    source: Tensor  # [B, S], each row ends in EOS
    target_in: Tensor  # [B, T], BOS and the target
    target_out: Tensor  # [B, T], the target and EOS
    indices: Tensor  # [B], which sentences of the corpus these are
    num_tokens: int  # real tokens of target_out
    num_source_tokens: int  # real tokens of source

    def to(self, device: Any) -> Batch:
        """The same batch on `device`."""
        return replace(
            self,
            source=self.source.to(device, non_blocking=True),
            target_in=self.target_in.to(device, non_blocking=True),
            target_out=self.target_out.to(device, non_blocking=True),
        )


@dataclass
class Loss:
    """Sums over target tokens; the one division by `num_tokens` happens globally, over micro-batches and ranks."""

    total: Tensor  # scalar: what is minimised
    nll: Tensor  # scalar: negative log-likelihood in nats, whose mean's exponential is the perplexity
    num_tokens: int


@dataclass(frozen=True)
class Hypothesis:
    """One finished output sentence: ids without BOS and EOS, and its score, the length-normalised log-probability."""

    tokens: list[int]
    score: float
    token_scores: list[float]  # log-probability of each token, EOS included where the search ended with one


@runtime_checkable
class DecoderState(Protocol):
    """What a model remembers between two steps. Opaque but for one verb."""

    def select(self, rows: Tensor) -> DecoderState:
        """The state whose row i is this state's row `rows[i]`: expands to beams, reorders, drops finished sentences.

        Args:
            rows: [N'] indices into the current N rows; repeated and missing ones allowed.
        """
        ...


@runtime_checkable
class Decodable(Protocol):
    """What the search needs. An ensemble is another one."""

    vocabulary_size: int

    def start(self, source: Tensor) -> DecoderState:
        """Encodes `source` [B, S] (padded, each row ending in EOS); the state has B rows."""
        ...

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """One step: `tokens` [N] are the last ids; returns log-probabilities [N, V] (float32) and the next state."""
        ...


@runtime_checkable
class Model(Decodable, Protocol):
    """A trainable `Decodable` (a `torch.nn.Module` besides)."""

    def features(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Decoder output before the vocabulary projection: [B, T, d]."""
        ...

    @property
    def output_weight(self) -> Tensor:
        """The projection to the vocabulary, [V, d]: logits = features @ output_weight^T."""
        ...

    def __call__(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Logits [B, T, V]."""
        ...


class Criterion(Protocol):
    """What is minimised."""

    def __call__(self, model: Any, batch: Batch) -> Loss: ...


class Schedule(Protocol):
    """A pure function from the step (the first is 1) to the learning rate."""

    def __call__(self, step: int) -> float: ...


class Task(Protocol):
    """Text to ids and back, and what a good output is. A task travels inside every checkpoint.

    A task's folder holds all it needs (vocabularies, tokeniser settings with their versions); `save` writes it and the
    class method `load` reads it again.
    """

    name: ClassVar[str]

    @property
    def source_vocabulary_size(self) -> int: ...

    @property
    def target_vocabulary_size(self) -> int: ...

    @property
    def shared_vocabulary(self) -> bool:
        """Whether source and target ids mean the same, so that the three embedding matrices can be one (section
        3.4).
        """
        ...

    def encode_source(self, line: str) -> list[int]:
        """Ids of one input line, without EOS (the batch adds it)."""
        ...

    def encode_target(self, line: str) -> list[int]: ...

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """Readable pieces, one for each id."""
        ...

    def target_tokens(self, ids: Sequence[int]) -> list[str]: ...

    def decode_target(self, ids: Sequence[int], source: str) -> str:
        """The output line for the ids of a hypothesis; `source` is the input line (a parser puts its words into
        the tree).
        """
        ...

    def max_length(self, source_length: int) -> int:
        """The most ids that a hypothesis may have for a source of that many ids (section 6.1: input length + 50)."""
        ...

    def evaluate(self, hypotheses: Sequence[str], references: Sequence[str]) -> Mapping[str, float]:
        """Corpus scores by name, of decoded lines against raw reference lines; the first is the one to select by."""
        ...

    def save(self, folder: Path) -> None: ...

    @classmethod
    def load(cls, folder: Path) -> Task: ...
