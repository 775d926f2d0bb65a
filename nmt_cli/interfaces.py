"""What passes between the rooms of the house: the data types and the protocols.

Letters: B sentences, S source length, T target length, V vocabulary, N live hypotheses, d the model's width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

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


class Constraint(Protocol):
    """The tokens allowed next, for N hypotheses at once. Immutable.

    The search starts with one row for each sentence and calls `allowed` and `advance` at each step. EOS is a token like
    any other: if it is never allowed, hypotheses end at the length limit.
    """

    def allowed(self) -> Tensor:
        """Return [N, V], true where the token may follow.

        A row without any allowed token drops its hypothesis. If a sentence has no other, its hypotheses are kept, cut
        short.
        """
        ...

    def advance(self, rows: Tensor, tokens: Tensor) -> Constraint:
        """Return the constraint whose row i is this one's row `rows[i]` after `tokens[i]`.

        Args:
            rows: [N'] indices into the N rows; rows may be repeated or left out, as in `DecoderState.select`.
            tokens: [N']. A token that is not allowed must not raise: if fewer tokens are allowed than the beam has
                places, the search fills it with hypotheses that it drops afterwards.
        """
        ...


class Example(NamedTuple):
    """A pair of raw lines and its place for messages, such as `train.en:17`."""

    source: str
    target: str
    place: str


TASK_FILE = "task.json"
"""The file in a task's directory that names the task and holds its settings."""


class Task(ABC):
    """Text to ids and back, and the score of outputs. A task is saved in prepared data and in every checkpoint.

    `registry.build(config)` makes a task without vocabularies for `nmt prepare`, which calls the first group of methods
    in the order below and copies the task to worker processes (so it must be picklable). Models, decoders and
    `nmt translate` use the second group.
    """

    name: ClassVar[str]
    search_defaults: ClassVar[Mapping[str, float]] = {}
    """Search options such as `beam` and `alpha` where this task's defaults are not those of translation."""

    # Preparing data.

    @abstractmethod
    def files(self, prefix: str) -> list[Path]:
        """Return the input files of `prefix`; raise a `DataError` if one is missing."""

    @abstractmethod
    def read(self, prefix: str, consumed: Callable[[int], None] | None = None) -> Iterator[Example]:
        """Yield the raw pairs of `prefix`. Called several times; must yield the same pairs each time.

        Args:
            consumed: called at intervals with the number of bytes read since the last call.
        """

    def rejection(self, example: Example) -> str | None:
        """Return a short reason to drop the pair from the training set, or None. Called for every pair."""
        return None

    @property
    def sample_pairs(self) -> int:
        """The maximum number of pairs that `learn` needs."""
        return 1_000_000

    def normalise(self, example: Example) -> tuple[str, str]:
        """Return the pair as the vocabularies see it. Runs in worker processes."""
        return example.source, example.target

    @abstractmethod
    def learn(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Learn the vocabularies from normalised pairs; `pairs` may be iterated several times and is not empty."""

    @abstractmethod
    def adopt(self, saved: Any, chosen: Collection[str] = ()) -> None:
        """Take the vocabularies of `saved`, a loaded task of the same class, instead of learning them.

        Args:
            chosen: names of the settings given by the user.

        Raises:
            UsageError: the vocabularies contradict the settings.
        """

    def describe(self) -> dict[str, Any]:
        """Return the task's entry in the manifest: settings, library versions, vocabulary fingerprints."""
        return {"name": self.name}

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write everything that `load` needs to the existing directory `folder`."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Task:
        """Read the task that `save` wrote."""

    # Training and decoding.

    @property
    @abstractmethod
    def source_vocabulary_size(self) -> int: ...

    @property
    @abstractmethod
    def target_vocabulary_size(self) -> int: ...

    @property
    def shared_vocabulary(self) -> bool:
        """Whether source and target ids mean the same, so that one matrix serves all embeddings (section 3.4)."""
        return False

    @abstractmethod
    def encode_source(self, line: str) -> list[int]:
        """Return the ids of an input line, without EOS."""

    @abstractmethod
    def encode_target(self, line: str) -> list[int]:
        """Return the ids of a target line, without EOS."""

    @abstractmethod
    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the written form of each source id."""

    @abstractmethod
    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the written form of each target id."""

    @abstractmethod
    def decode_target(self, ids: Sequence[int], source: str) -> str:
        """Return the output line for the ids of a hypothesis; `source` is the input line."""

    def repaired(self, ids: Sequence[int], source: str) -> tuple[str, Mapping[str, int]]:
        """Return the output line and the number of repairs of each kind, for tasks that correct malformed outputs."""
        return self.decode_target(ids, source), {}

    def constraint(self, sources: Sequence[str], limits: Sequence[int], device: Any) -> Constraint | None:
        """Return the constraint of `--constrained` for these input lines, one row each; None if the task has none.

        Args:
            limits: the maximum number of tokens of each output, EOS not counted.
        """
        return None

    def drawing(self, text: str) -> Any:
        """Return an output line as a rich renderable for terminals, or None to print the line itself."""
        return None

    def max_length(self, source_length: int) -> int:
        """Return the maximum output length for a source of that many ids (section 6.1: input length + 50)."""
        return source_length + 50

    @abstractmethod
    def evaluate(self, hypotheses: Sequence[str], references: Sequence[str]) -> Mapping[str, float]:
        """Return corpus scores by name, of output lines against raw reference lines; the first one selects models."""
