"""Lines in, lines out: encodes, sorts by length into batches, searches, and gives each line its result, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.device import is_out_of_memory
from nmt_cli.errors import NmtError, UsageError
from nmt_cli.interfaces import EOS, PAD, Decodable, Hypothesis, Task

LARGEST_BATCH = 128
"""Sentences: bounds the log-probabilities of one step, [128 * beam, V], when sentences are short."""

CHARACTERS_PER_TOKEN = 100
"""A line of more characters than this for each token that is read of it is cut before its tokens are made, which takes
long."""


@dataclass(frozen=True)
class Output:
    """One output of a line."""

    text: str
    score: float  # log-probability over the length penalty
    tokens: list[str]  # the pieces that the model wrote
    token_scores: list[float]  # log-probability of each, and of the end where there was one
    repairs: Mapping[str, int] = field(default_factory=dict)  # number of each kind
    ids: Sequence[int] = ()  # those of the tokens


@dataclass(frozen=True)
class Translation:
    """A line and its outputs, the best first. An empty line has one empty output of score 0."""

    source: str
    outputs: list[Output]
    source_length: int  # in tokens, as far as they were read
    truncated: bool  # whether the line was longer

    @property
    def text(self) -> str:
        """The best output."""
        return self.outputs[0].text


class _Encoded(NamedTuple):
    """A line as ids, and where it stands in its window."""

    place: int
    line: str
    ids: list[int]
    truncated: bool


@dataclass(frozen=True)
class Translator:
    """A model and its task, ready to translate. It holds nothing that changes: threads may share it.

    Args:
        task: turns lines into ids and back.
        model: in evaluation mode, on `device`; an `Ensemble` is another model.
        options: how to batch and search.
    """

    task: Task
    model: Decodable
    device: torch.device
    options: TranslateOptions = field(default_factory=TranslateOptions)

    def __post_init__(self) -> None:
        """Raise UsageError if `constrained` is set but the task has no constraint."""
        if self.options.constrained and self.task.constraint([], [], self.device) is None:
            raise UsageError(f"the task {self.task.name!r} has no constraint on its outputs: leave out --constrained")

    def translate(self, lines: Iterable[str]) -> Iterator[Translation]:
        """Translates any number of lines in the memory of `read_ahead` of them; one result for each, in order.

        Raises:
            NmtError: the memory does not hold the search of one line.
        """
        for window in windows(lines, self.options.read_ahead):
            yield from self.translate_window(window)

    def translate_window(
        self, lines: Sequence[str], advance: Callable[[int], None] = lambda lines: None
    ) -> list[Translation]:
        """Translates these lines together; one result for each, in order.

        Args:
            advance: is told, now and then, how many more lines are done.
        """
        encoded = [self._encode(place, line) for place, line in enumerate(lines)]
        results = [_empty(line) for line in lines]
        for batch in self._batches([line for line in encoded if line.ids]):
            for line, hypotheses in zip(batch, self._search(batch), strict=True):
                results[line.place] = self._translation(line, hypotheses)
            advance(len(batch))
        return results

    def source_ids(self, line: str) -> list[int]:
        """The ids of a line as far as it is translated, without EOS; none where it is empty."""
        return self._encode(0, line).ids

    def _encode(self, place: int, line: str) -> _Encoded:
        """The first ids of a line; none where it is empty. Half a surrogate pair, which is no text, becomes a `?`."""
        limit = self.options.max_source_length
        line = line.encode("utf-8", "replace").decode()
        text = line.strip()
        ids = self.task.encode_source(text[: limit * CHARACTERS_PER_TOKEN]) if text else []
        return _Encoded(place, line, ids[:limit], len(ids) > limit or len(text) > limit * CHARACTERS_PER_TOKEN)

    def _batches(self, lines: list[_Encoded]) -> Iterator[list[_Encoded]]:
        """Groups of lines of like lengths, the longest first; each fills the budget as far as it goes."""
        batch: list[_Encoded] = []
        for line in sorted(lines, key=lambda line: -len(line.ids)):
            longest = len((batch or [line])[0].ids) + 1
            full = (len(batch) + 1) * longest > self.options.batch_tokens or len(batch) == LARGEST_BATCH
            if batch and full:
                yield batch
                batch = []
            batch.append(line)
        if batch:
            yield batch

    def _search(self, batch: list[_Encoded]) -> list[list[Hypothesis]]:
        """Searches a batch; in halves where the device's memory does not hold it."""
        try:
            limits = [self._limit(len(line.ids)) for line in batch]
            source = _pad([line.ids for line in batch]).to(self.device)
            lines = [line.line for line in batch]
            constraint = self.task.constraint(lines, limits, self.device) if self.options.constrained else None
            return beam_search(self.model, source, limits, self.options.search, constraint)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(batch) == 1:
                raise NmtError(
                    f"out of memory on a line of {len(batch[0].ids)} tokens, with a beam of {self.options.search.beam} "
                    f"and up to {limits[0]} tokens of output: use a smaller beam, max_length_offset or "
                    "max_source_length"
                ) from error
        half = len(batch) // 2
        return self._search(batch[:half]) + self._search(batch[half:])

    def _limit(self, source_length: int) -> int:
        offset = self.options.max_length_offset
        return self.task.max_length(source_length) if offset is None else source_length + offset

    def _translation(self, line: _Encoded, hypotheses: list[Hypothesis]) -> Translation:
        outputs = [self._output(hypothesis, line.line) for hypothesis in hypotheses]
        return Translation(line.line, outputs, len(line.ids), line.truncated)

    def _output(self, hypothesis: Hypothesis, source: str) -> Output:
        tokens = hypothesis.tokens
        text, repairs = self.task.repaired(tokens, source)
        pieces = self.task.target_tokens(tokens)
        return Output(text, hypothesis.score, pieces, hypothesis.token_scores, repairs, tokens)


def windows(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Groups of `size` lines, the last one of what is left; reads no further than the group that it gives."""
    window: list[str] = []
    for line in lines:
        window.append(line)
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window


def _empty(line: str) -> Translation:
    return Translation(line, [Output("", 0.0, [], [])], 0, truncated=False)


def _pad(rows: list[list[int]]) -> Tensor:
    """[B, S]: each row with its EOS, padded on the right."""
    width = max(map(len, rows)) + 1
    return torch.tensor([[*row, EOS] + [PAD] * (width - 1 - len(row)) for row in rows])
