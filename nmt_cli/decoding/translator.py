"""Translation of lines: encode, sort by length into batches, search, and return the results in order."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch

from nmt_cli.data.batching import pad
from nmt_cli.data.parallel import Workers
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.constraints import FREE, constraint_of
from nmt_cli.decoding.engine import Engine, Request
from nmt_cli.decoding.options import TranslateOptions, with_options
from nmt_cli.decoding.outputs import Output, Translation
from nmt_cli.decoding.sampling import sample
from nmt_cli.decoding.scoring import TargetScore, token_log_probabilities
from nmt_cli.decoding.sentences import splitter, translate_by_sentence
from nmt_cli.decoding.unknown_words import UnknownWords
from nmt_cli.device import in_halves
from nmt_cli.errors import DataError, UsageError
from nmt_cli.interfaces import EOS, UNK, Decodable, Hypothesis, Model, Prefix, Task

LARGEST_BATCH = {"cpu": 128, "cuda": 512}
"""Hypotheses in a batch: a CPU is as fast with 128 as with more. Bounds the log-probabilities [128, V] of a step."""

DIVIDED = 16
"""Sentences from which on a CPU divides a window in at least two batches, for two workers, even if there are none."""

CHARACTERS_PER_TOKEN = 100
"""A line is cut after this many characters for each token of `max_source_length`, before it is encoded."""


class _Encoded(NamedTuple):
    """A line as ids, with all that its translation depends on."""

    position: int  # among the lines translated together
    number: int  # in the whole input, from 1
    line: str
    ids: list[int]
    prefix: Prefix
    truncated: bool


@dataclass(frozen=True)
class Translator:
    """A model and its task, ready to translate. Immutable, so threads may share it.

    The options of `translate` and `translate_detailed` are the fields of `SearchOptions` and `TranslateOptions`, such
    as `beam`, `alpha`, `nbest` and `batch_tokens`; they replace those of `options` for one call.

    Args:
        model: what the search uses, on `device`, one model or an ensemble; or a model in another program.
        models: the members as they were trained, in evaluation mode; none in another program.
        dictionary: translations of source words, for `replace_unknown`.
    """

    task: Task
    model: Decodable | Engine = field(repr=False)  # pages long
    device: torch.device
    options: TranslateOptions = field(default_factory=TranslateOptions)
    models: Sequence[Model] = field(default=(), repr=False)
    dictionary: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raise UsageError if an option is set that task, model or program does not have, or that needs an extra."""
        if isinstance(self.model, Engine):
            self.model.check(self.options)
        if self.options.constrained and self.task.constraint([], [], self.device) is None:
            raise UsageError(f"the task {self.task.name!r} has no constraint on its outputs: leave out --constrained")
        if self.options.replace_unknown:
            self._unknown_words()
        if self.options.split_sentences:
            splitter(self.task, self.options.sentence_language)

    def translate(
        self, lines: Sequence[str], *, prefixes: Iterable[str] | None = None, **options: int | float | bool | str
    ) -> list[str]:
        """Return the best output of each line, in order. An empty line gives an empty output.

        Args:
            prefixes: the text that each output must begin with; "" for none.

        Raises:
            UsageError: an option is unknown or out of range, `lines` or `prefixes` are not strings, or there are more
                or fewer prefixes than lines.
            DataError: a prefix has more than `max_source_length` tokens, or the task cannot read it.
            NmtError: the search of one line runs out of memory.
        """
        return [translation.text for translation in self.translate_detailed(lines, prefixes=prefixes, **options)]

    def translate_detailed(
        self, lines: Iterable[str], *, prefixes: Iterable[str] | None = None, **options: int | float | bool | str
    ) -> Iterator[Translation]:
        """Yield the translation of each line, with scores, subwords and `nbest` outputs; `lines` may be endless.

        Args and errors: as `translate`.
        """
        if isinstance(lines, str) or not isinstance(lines, Iterable):
            raise UsageError(f"translate takes a list of lines, not {type(lines).__name__}; for one line, write [line]")
        if isinstance(prefixes, str) or not isinstance(prefixes, Iterable | None):
            raise UsageError(f"prefixes must be a list with one for each line, not {type(prefixes).__name__}")
        translator = dataclasses.replace(self, options=with_options(self.options, options))
        return translator._translated(lines, prefixes)

    def translate_window(
        self,
        lines: Sequence[str],
        advance: Callable[[Sequence[str]], None] = lambda lines: None,
        *,
        first: int = 1,
        prefixes: Sequence[str] | None = None,
        workers: Workers | None = None,
    ) -> list[Translation]:
        """Translate these lines together; one result for each, in order.

        Args:
            advance: called with the lines translated since the last call.
            first: the number of the first line in the whole input; samples depend on it.
            prefixes: the text that each output must begin with; "" for none.
            workers: processes whose state is this translator. The translations do not depend on their number.

        Raises:
            UsageError: `split_sentences` is set, and there are prefixes.
        """
        if self.options.split_sentences:
            if prefixes is not None:
                raise UsageError("--split-sentences joins the outputs of a line's sentences: leave out the prefixes")
            split = splitter(self.task, self.options.sentence_language)
            each = dataclasses.replace(self.options, split_sentences=False, sentence_language=None)
            translate = partial(dataclasses.replace(self, options=each).translate_window, workers=workers)
            return translate_by_sentence(translate, list(map(_plain, lines)), split, advance)
        pairs = zip(lines, [""] * len(lines) if prefixes is None else prefixes, strict=True)
        encoded = [self._encode(n, first + n, line, prefix) for n, (line, prefix) in enumerate(pairs)]
        advance([line.line for line in encoded if not line.ids])
        results = [Translation(line, [Output("", 0.0, [], [])], 0, truncated=False) for line in lines]
        batches = list(self._batches([line for line in encoded if line.ids]))
        for batch, outputs in self._searched(batches, workers):
            for line, its_outputs in zip(batch, outputs, strict=True):
                results[line.position] = Translation(line.line, its_outputs, len(line.ids), line.truncated)
            advance([line.line for line in batch])
        return results

    def source_ids(self, line: str) -> list[int]:
        """Return the ids of a line after truncation, without EOS; none if it is empty."""
        return self._encode(0, 1, line).ids

    def score_targets(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        advance: Callable[[Sequence[str]], None] = lambda sources: None,
        place: Callable[[int], str] = lambda position: f"target {position + 1}",
    ) -> list[TargetScore]:
        """Return the log-probability of each target as the output of the source at the same position.

        The options `batch_tokens` and `max_source_length` apply to both sides. Nothing is left out: an empty source is
        the end of the sentence alone, and unknown words have the probability of the unknown word.

        Args:
            advance: called with the sources of the targets scored since the last call.
            place: the name of the target at a position, for messages.

        Raises:
            UsageError: these are not two lists of strings of the same length, or the model is in another program.
            DataError: the task cannot read a target, such as a tree with unbalanced brackets.
            CheckpointError: a probability is NaN.
            NmtError: one pair does not fit in memory.
        """
        if isinstance(self.model, Engine):
            raise UsageError("given targets are scored by nmt's own engine: load the checkpoint with it")
        if isinstance(sources, str) or isinstance(targets, str) or len(sources) != len(targets):
            raise UsageError("score_targets takes two lists of lines of the same length")
        inputs = [self._encode(position, position + 1, line) for position, line in enumerate(sources)]
        outputs = [self._encode_target(position, line, place) for position, line in enumerate(targets)]
        log_probabilities = token_log_probabilities(
            self.models,
            [line.ids for line in inputs],
            [line.ids for line in outputs],
            self.device,
            self.options.batch_tokens,
            lambda positions: advance([inputs[i].line for i in positions]),
        )
        return [
            TargetScore(
                source.line,
                target.line,
                self.task.target_tokens(target.ids),
                scores[:-1] if target.truncated else scores,
                source.truncated,
                target.truncated,
            )
            for source, target, scores in zip(inputs, outputs, log_probabilities, strict=True)
        ]

    def _translated(self, lines: Iterable[str], prefixes: Iterable[str] | None) -> Iterator[Translation]:
        rest, beginnings = iter(lines), None if prefixes is None else iter(prefixes)
        first, size = 1, self.options.read_ahead
        while window := list(itertools.islice(rest, size)):
            theirs = None if beginnings is None else list(itertools.islice(beginnings, len(window)))
            if theirs is not None and len(theirs) < len(window):
                read = first - 1 + len(theirs)
                raise UsageError(f"there are more lines than prefixes ({read}): give one for each line")
            yield from self.translate_window(window, first=first, prefixes=theirs)
            first += len(window)
        if beginnings is not None and list(itertools.islice(beginnings, 1)):
            raise UsageError(f"there are more prefixes than lines ({first - 1}): give one for each line")

    def _encode(self, position: int, number: int, line: str, prefix: str = "") -> _Encoded:
        line, ids, truncated = self._ids(line, self.task.encode_source)
        prefix = _plain(prefix)
        beginning = self._prefix(number, prefix) if ids and prefix.strip() else FREE
        return _Encoded(position, number, line, ids, beginning, truncated)

    def _encode_target(self, position: int, line: str, place: Callable[[int], str]) -> _Encoded:
        try:
            line, ids, truncated = self._ids(line, self.task.encode_target)
        except DataError as error:
            raise DataError(f"{place(position)}: {error}") from error
        return _Encoded(position, position + 1, line, ids, FREE, truncated)

    def _ids(self, line: str, encode: Callable[[str], list[int]]) -> tuple[str, list[int], bool]:
        """The line, its ids, and whether they are only the first `max_source_length`."""
        line = _plain(line)
        limit = self.options.max_source_length
        text = line.strip()
        ids = encode(text[: limit * CHARACTERS_PER_TOKEN]) if text else []
        return line, ids[:limit], len(ids) > limit or len(text) > limit * CHARACTERS_PER_TOKEN

    def _prefix(self, number: int, text: str) -> Prefix:
        limit = self.options.max_source_length
        if len(text) <= limit * CHARACTERS_PER_TOKEN:
            try:
                prefix = self.task.encode_prefix(text)
            except DataError as error:
                raise DataError(f"the prefix of line {number}: {error}") from error
            if len(prefix.ids) <= limit:
                return prefix
        raise DataError(f"the prefix of line {number} has more than {limit} tokens (--max-source-length); shorten it")

    def _batches(self, lines: list[_Encoded]) -> Iterator[list[_Encoded]]:
        """Group lines by length, the longest first, into batches of at most `batch_tokens`."""
        search = self.options.search
        width = search.nbest if self.options.sampling.sample else search.beam
        most = max(1, LARGEST_BATCH[self.device.type] // width)
        if self.device.type == "cpu" and len(lines) >= DIVIDED:
            most = min(most, -(-len(lines) // 2))
        batch: list[_Encoded] = []
        for line in sorted(lines, key=lambda line: -len(line.ids)):
            longest = len((batch or [line])[0].ids) + 1
            full = (len(batch) + 1) * longest > self.options.batch_tokens or len(batch) == most
            if batch and full:
                yield batch
                batch = []
            batch.append(line)
        if batch:
            yield batch

    def _searched(
        self, batches: list[list[_Encoded]], workers: Workers | None
    ) -> Iterator[tuple[list[_Encoded], list[list[Output]]]]:
        """Yield each batch and the outputs of its lines."""
        if isinstance(self.model, Engine):
            if any(line.prefix != FREE for batch in batches for line in batch):
                raise UsageError("prefixes need nmt's own engine: leave them out, or the other engine")
            requests = [[Request(line.ids, self._limit(line)) for line in batch] for batch in batches]
            for batch, found in zip(batches, self.model.search(requests, self.options), strict=True):
                yield batch, self._outputs(batch, found)
        elif workers is None or len(batches) == 1:
            yield from ((batch, self.outputs(batch)) for batch in batches)
        else:
            yield from workers.map(_outputs_of_worker, batches)

    def _search(self, batch: Sequence[_Encoded]) -> list[list[Hypothesis]]:
        assert not isinstance(self.model, Engine)
        options, search = self.options, self.options.search
        limits = [self._limit(line) for line in batch]
        prefixes = [line.prefix for line in batch]
        # With prefixes, the constraint decides about the unknown word.
        if options.replace_unknown or any(prefix != FREE for prefix in prefixes):
            search = dataclasses.replace(search, unknown=True)
        source = pad([[*line.ids, EOS] for line in batch]).to(self.device)
        lines = [line.line for line in batch]
        constraint = constraint_of(self.task, lines, limits, prefixes, options, self.device)
        if options.sampling.sample:
            numbers = [line.number for line in batch]
            return sample(self.model, source, limits, search, options.sampling, numbers, constraint)
        return beam_search(self.model, source, limits, search, constraint)

    def _too_large(self, line: _Encoded) -> str:
        search = self.options.search
        width = f"{search.nbest} samples" if self.options.sampling.sample else f"a beam of {search.beam}"
        return (
            f"out of memory on a line of {len(line.ids)} tokens, with {width} and up to {self._limit(line)} tokens of "
            "output: use a smaller beam, nbest, max_length_offset or max_source_length"
        )

    def outputs(self, batch: list[_Encoded]) -> list[list[Output]]:
        """Translate a batch; the outputs of each line."""
        return self._outputs(batch, in_halves(self._search, batch, self._too_large))

    def _outputs(self, batch: list[_Encoded], found: Iterable[list[Hypothesis]]) -> list[list[Output]]:
        lines = zip(batch, found, strict=True)
        return [[self._output(hypothesis, line) for hypothesis in hypotheses] for line, hypotheses in lines]

    def _limit(self, line: _Encoded) -> int:
        """The maximum output length of a line, which is not less than the minimum or the length of its prefix."""
        options, length = self.options, len(line.ids)
        offset = options.max_length_offset
        limit = self.task.max_length(length) if offset is None else length + offset
        if options.max_length is not None:
            limit = min(limit, options.max_length)
        return max(limit, options.search.min_length, len(line.prefix.ids) + len(line.prefix.rest))

    def _output(self, hypothesis: Hypothesis, line: _Encoded) -> Output:
        ids = hypothesis.tokens
        text, repairs = self.task.repaired(ids, line.line)
        if self.options.replace_unknown and UNK in ids:
            text = self._unknown_words().replaced(ids, line.ids, line.line.strip())
        return Output(text, hypothesis.score, self.task.target_tokens(ids), hypothesis.token_scores, repairs, ids)

    def _unknown_words(self) -> UnknownWords:
        return UnknownWords(self.task, self.models, self.dictionary, self.device)


def _outputs_of_worker(translator: Translator, batch: list[_Encoded]) -> list[list[Output]]:
    """`Translator.outputs` in one of several processes, which share the cores."""
    torch.set_num_threads(1)
    return translator.outputs(batch)


def _plain(text: str) -> str:
    """Return the text with "?" for half a surrogate pair; raise UsageError if it is no text, or several lines."""
    if not isinstance(text, str):
        raise UsageError(f"expected lines of text, not {type(text).__name__}: {text!r}")
    if "\n" in text.strip():
        raise UsageError(f"expected one line, not several, in {text[:60]!r}; give a list with each line")
    return text.encode("utf-8", "replace").decode()
