"""Tasks: how text becomes ids, ids become text, and outputs are scored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from nmt_cli.interfaces import ragged

if TYPE_CHECKING:
    from nmt_cli.interfaces import Ragged

TASK_FILE = "task.json"  # the file in a task's directory that names the task and holds its settings


class Example(NamedTuple):
    """A pair of raw lines and its place for messages, such as `train.en:17`."""

    source: str
    target: str
    place: str


class Task(ABC):
    """Text to ids and back, and scores of outputs. Prepared data and checkpoints have their task.

    `nmt prepare` builds a task without vocabularies, calls the first group of methods in the order
    below, and copies the task to worker processes, so it must be picklable. Training and decoding
    use the second group.
    """

    name: ClassVar[str]
    default_beam: ClassVar[int] = 4  # section 6.1
    default_alpha: ClassVar[float] = 0.6
    default_exact_stopping: ClassVar[bool] = False
    presets: ClassVar[Sequence[str]] = ()
    """Presets for corpora of different sizes, the largest model first."""
    measures: ClassVar[Sequence[str]] = ()
    """The scores of `evaluate` that can choose the best checkpoint of a run: larger is better."""
    target_language: str = ""  # for metrics with tokenizers
    tokenization: str = "13a"
    """sacreBLEU's name for the tokenization of BLEU in `evaluate`."""

    # Preparing data.

    @abstractmethod
    def files(self, prefix: str) -> list[Path]:
        """Return the input files of `prefix`. Raise a `DataError` if one is missing."""

    @abstractmethod
    def read(self, prefix: str, consumed: Callable[[int], None] | None = None) -> Iterator[Example]:
        """Yield the raw pairs of `prefix`, the same at each call.

        `consumed` is called with the number of bytes read since its last call.
        """

    def blocks(self, prefix: str, consumed: Callable[[int], None] | None = None) -> Iterator[Sized]:
        """Yield the pairs of `read` in blocks of fixed sizes, whose length is the number of pairs.

        A task whose `read` takes long may override this and `examples`.
        """
        stream = self.read(prefix, consumed)
        # A call of a worker process costs as much as many pairs.
        block = list(islice(stream, 1000))
        while block:
            yield block
            block = list(islice(stream, 1000))

    def examples(self, block: Any) -> list[Example]:
        """Return the pairs of a block. Runs in worker processes."""
        return list(block)

    def look_ahead(self, training: Iterable[str], held_out: Iterable[str], adopted: bool) -> None:  # noqa: B027
        """Read what must be known of training and held-out text before its first pass.

        Raises:
            UsageError: the vocabularies are `adopted`, and lack something that the text has.
        """

    def rejection(self, example: Example) -> str | None:
        """Return a short reason to drop the pair from the training set, or None."""
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
        """Learn the vocabularies from normalised pairs, one or more. They can be iterated again."""

    @abstractmethod
    def adopt(self, saved: Any, chosen: Collection[str] = ()) -> None:
        """Take the vocabularies of `saved`, a loaded task of the same class.

        Args:
            chosen: the names of the settings that the user gave.

        Raises:
            UsageError: the vocabularies contradict the settings.
        """

    def describe(self) -> dict[str, Any]:
        """Return the entry in the manifest: settings, versions of libraries, vocabularies."""
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
        """Whether source and target ids mean the same. Then embeddings share one matrix (3.4)."""
        return False

    def text_of(self, line: str) -> str:
        """Return a line without parts that are not text, such as tags."""
        return line

    @property
    def never_generated(self) -> int:
        """The number of ids, the last of the target vocabulary, that outputs do not have."""
        return 0

    @property
    def languages(self) -> tuple[str, str] | None:
        """Source and target language, where both sides are text, or None."""
        return None

    @abstractmethod
    def encode_source(self, line: str) -> list[int]:
        """Return the ids of an input line, without EOS."""

    @abstractmethod
    def encode_target(self, line: str) -> list[int]:
        """Return the ids of a target line, without EOS."""

    def encode_sources(self, lines: Sequence[str]) -> Ragged:
        """Return what `encode_source` returns for each line. Runs in worker processes."""
        return ragged([self.encode_source(line) for line in lines])

    def encode_targets(self, lines: Sequence[str]) -> Ragged:
        """Return what `encode_target` returns for each line. Runs in worker processes."""
        return ragged([self.encode_target(line) for line in lines])

    @abstractmethod
    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the written form of each source id."""

    @abstractmethod
    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the written form of each target id."""

    def difference(self, other: Task) -> str | None:
        """Return what gives a text other ids in `other`, such as "source vocabulary", or None."""
        sources = self.source_tokens(range(self.source_vocabulary_size))
        other_sources = other.source_tokens(range(other.source_vocabulary_size))
        if self.name != other.name or sources != other_sources:
            return "source vocabulary"
        targets = self.target_tokens(range(self.target_vocabulary_size))
        other_targets = other.target_tokens(range(other.target_vocabulary_size))
        if targets != other_targets:
            return "target vocabulary"
        return None

    @abstractmethod
    def decode_target(self, ids: Sequence[int], source: str) -> str:
        """Return the output line for the ids of a hypothesis and its input line, `source`."""

    def repaired(self, ids: Sequence[int], source: str) -> tuple[str, Mapping[str, int]]:
        """Return the output line, with malformed outputs corrected, and repairs by kind."""
        return self.decode_target(ids, source), {}

    def drawing(self, text: str) -> Any:
        """Return an output line as a rich renderable for terminals, or None to print the line."""
        return None

    def max_length(self, source_length: int) -> int:
        """Return the maximum output length: input length + 50 (section 6.1), in ids."""
        return source_length + 50

    @abstractmethod
    def evaluate(self, hypotheses: Sequence[str], references: Sequence[str]) -> Mapping[str, float]:
        """Return corpus scores of output lines against raw reference lines, by name."""
