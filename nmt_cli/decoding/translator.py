"""Translation of lines: encode, sort by length into batches, search, and return the results in
order.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from nmt_cli import registry
from nmt_cli.data.parallel import Workers
from nmt_cli.decoding.around import Chain, chain_of
from nmt_cli.decoding.encoding import is_unknown, plain, request_of
from nmt_cli.decoding.engine import Engine, Request
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.decoding.outputs import Output, TargetScore, Translation
from nmt_cli.device import fast
from nmt_cli.errors import UsageError, check_iterable
from nmt_cli.interfaces import Hypothesis
from nmt_cli.task import Task

SHARE = 8
"""Least sentences of a batch where a window of few sentences is divided among workers."""


@dataclass(frozen=True)
class Translator:
    """A model and its task, ready to translate. Immutable, so threads may share it.

    Args:
        engine: the model, its task and the search.
        options: of every translation, where a call gives no others.
    """

    engine: Engine
    options: TranslateOptions = field(default_factory=TranslateOptions)

    def __post_init__(self) -> None:
        """Raise UsageError if an option is set that task, model or engine does not have, or that
        needs an extra.
        """
        self.engine.check(self.options)
        _ = self.task, self.chain, self.search

    @cached_property
    def task(self) -> Task:
        """What makes ids of text, and text of ids. An extra of the kind `encoding` makes another
        task of it.
        """
        task = self.engine.task
        for config in self.options.used("encoding"):
            task = registry.build(config, task=task)
        return task

    @cached_property
    def chain(self) -> Chain:
        """What goes around each translation."""
        return chain_of(self.options, self.engine)

    @cached_property
    def search(self) -> SearchSettings:
        """The options of the search, with the task's defaults."""
        search = self.options.settings(self.task)
        return dataclasses.replace(search, unknown=True) if self.chain.allows_unknown else search

    def translate(
        self,
        lines: Sequence[str],
        *,
        prefixes: Iterable[str] | None = None,
        **options: Any,
    ) -> list[str]:
        """Return the best output of each line, in order. An empty line gives an empty output.

        >>> translator.translate(["A dog runs.", "Two men talk."], beam=8)  # doctest: +SKIP
        ['Ein Hund läuft.', 'Zwei Männer unterhalten sich.']

        The options are the flags of `nmt translate`, for this call. None is the option that the
        translator was loaded with, and then the flag's default.

        Args:
            prefixes: the text that each output must begin with; "" for none.
            beam: the beam size; 1 is greedy search.
            alpha: the exponent of the length penalty.
            nbest: the number of outputs of each line, of which `translate` returns the best.
            min_length, max_length: of an output, in tokens.
            max_length_offset: the maximum output length is that of the source plus this.
            unknown: whether outputs may have the unknown word.
            sample: draw outputs at random, with `temperature`, from the `top_k` most probable
                tokens, or from the fewest whose probabilities sum to `top_p`. The same `seed` gives
                the same outputs.
            batch_tokens: source tokens in a batch.
            read_ahead: lines that are sorted by length at once.
            max_source_length: source tokens of a line that are translated.
            no_repeat_ngram: the length of token sequences that an output has only once.
            constrained: allow only the outputs that the task defines as well-formed.

        Registered extras have more options, such as `markup` or `split_sentences`.

        Raises:
            UsageError: an option is out of range, `lines` or `prefixes` are not strings, or their
                numbers differ.
            DataError: a prefix has more than `max_source_length` tokens, or the task cannot read
                it.
            NmtError: the search of one line runs out of memory.
        """
        return [each.text for each in self.translate_detailed(lines, prefixes=prefixes, **options)]

    def translate_detailed(
        self,
        lines: Iterable[str],
        *,
        prefixes: Iterable[str] | None = None,
        **options: Any,
    ) -> Iterator[Translation]:
        """Yield the translation of each line, with scores, subwords and `nbest` outputs; `lines`
        may be endless.

        Args and errors: as `translate`.
        """
        check_iterable(lines, "a list of lines ([line] for one line)")
        if prefixes is not None:
            check_iterable(prefixes, "a list of prefixes, one for each line")
        chosen = self.options.replaced(options)
        translator = self if chosen == self.options else dataclasses.replace(self, options=chosen)
        return translator._windows(lines, prefixes)

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
            workers: processes whose state is this translator. The translations depend on their
                number by rounding only.

        Raises:
            UsageError: there are prefixes, and an output cannot begin with one.
        """
        if prefixes is not None:
            self.chain.check_prefix()
        readings = [self.chain.read(plain(line)) for line in lines]
        texts, numbers, line_of = list[str](), list[int](), list[int]()
        for place, (parts, _) in enumerate(readings):
            texts += parts
            numbers += [first + place + (part << 32) for part in range(len(parts))]
            line_of += [place] * len(parts)
        waiting = Counter(line_of)

        def done(places: Iterable[int]) -> None:
            of_lines = [line_of[place] for place in places]
            waiting.subtract(of_lines)
            advance([lines[place] for place in dict.fromkeys(of_lines) if not waiting[place]])

        translations = iter(
            self.translate_texts(texts, done, numbers=numbers, prefixes=prefixes, workers=workers)
        )
        return [
            self.chain.write(list(itertools.islice(translations, len(parts))), layers)
            for parts, layers in readings
        ]

    def translate_texts(
        self,
        texts: Sequence[str],
        done: Callable[[Iterable[int]], None] = lambda places: None,
        *,
        numbers: Sequence[int] | None = None,
        prefixes: Sequence[str] | None = None,
        workers: Workers | None = None,
    ) -> list[Translation]:
        """Translate what the chain has read, a line or a part of one; one result for each, in
        order.

        Args:
            done: called with the places of the texts translated since the last call.
            numbers: on which samples depend; by default from 1.
            prefixes, workers: as for `translate_window`.
        """
        numbers = range(1, len(texts) + 1) if numbers is None else numbers
        given = zip(
            numbers, texts, [""] * len(texts) if prefixes is None else prefixes, strict=True
        )
        requests = [request_of(self.task, self.options, *text) for text in given]
        done([place for place, request in enumerate(requests) if not request.ids])
        results = [
            Translation(text, [Output("", 0.0, [], [])], 0, truncated=False) for text in texts
        ]
        places = {number: place for place, number in enumerate(numbers)}
        parallel = workers.processes if workers else self.engine.parallel or 1
        batches = list(self._batches([request for request in requests if request.ids], parallel))
        several = workers if len(batches) > 1 else None
        for batch, rows in (
            several.map(_outputs_of_worker, batches) if several else self.outputs(batches)
        ):
            for request, outputs in zip(batch, rows, strict=True):
                results[places[request.number]] = Translation(
                    request.line,
                    outputs,
                    source_length=len(request.ids),
                    truncated=request.truncated,
                    unknown=is_unknown(self.task, request.ids),
                    longest=max(len(request.ids), *(len(output.ids) for output in outputs)),
                )
            done([places[request.number] for request in batch])
        return results

    def score_targets(
        self, sources: Iterable[str], targets: Iterable[str], *more: Any
    ) -> list[TargetScore]:
        """Return the log-probability of each target as the output of the source at the same
        position.

        The entry point `score_targets` of the group `nmt.methods` has the function, and describes
        its arguments.
        """
        scores: list[TargetScore] = registry.method("score_targets")(self, sources, targets, *more)
        return scores

    @property
    def batch_tokens(self) -> int:
        return self.options.batch_tokens or fast(self.engine.device).sizes.batch_tokens

    def _windows(
        self, lines: Iterable[str], prefixes: Iterable[str] | None
    ) -> Iterator[Translation]:
        rest, beginnings = iter(lines), None if prefixes is None else iter(prefixes)
        first = 1
        while window := list(itertools.islice(rest, self.options.read_ahead)):
            theirs = None if beginnings is None else list(itertools.islice(beginnings, len(window)))
            if theirs is not None and len(theirs) < len(window):
                read = first - 1 + len(theirs)
                raise UsageError(
                    f"there are more lines than prefixes ({read}): give one for each line"
                )
            yield from self.translate_window(window, first=first, prefixes=theirs)
            first += len(window)
        if list(itertools.islice(beginnings or (), 1)):
            raise UsageError(
                f"there are more prefixes than lines ({first - 1}): give one for each line"
            )

    def _batches(self, requests: Sequence[Request], parallel: int = 1) -> Iterator[list[Request]]:
        """Group lines by length, the longest first, into batches of at most `batch_tokens`,
        `parallel` at a time.
        """
        shares = max(1, min(parallel, len(requests) // SHARE))
        hypotheses, batch_tokens = fast(self.engine.device).sizes.hypotheses, self.batch_tokens
        most = max(1, min(hypotheses // self.search.beam, -(-len(requests) // shares)))
        batch: list[Request] = []
        for request in sorted(requests, key=lambda request: -len(request.ids)):
            longest = len((batch or [request])[0].ids) + 1
            full = (len(batch) + 1) * longest > batch_tokens or len(batch) == most
            if batch and full:
                yield batch
                batch = []
            batch.append(request)
        if batch:
            yield batch

    def outputs(
        self, batches: Sequence[list[Request]]
    ) -> Iterator[tuple[list[Request], list[list[Output]]]]:
        """Translate batches; yield each with the outputs of its lines."""
        for batch, rows in zip(
            batches, self.engine.search(batches, self.search, self.options), strict=True
        ):
            outputs = [
                [self._output(hypothesis, text) for hypothesis in row]
                for text, row in zip(batch, rows, strict=True)
            ]
            yield batch, self.chain.revise(batch, outputs)

    def _output(self, hypothesis: Hypothesis, text: Request) -> Output:
        written, repairs = self.task.repaired(hypothesis.tokens, text.line)
        tokens = self.task.target_tokens(hypothesis.tokens)
        return Output(
            written, hypothesis.score, tokens, hypothesis.token_scores, repairs, hypothesis.tokens
        )


def _outputs_of_worker(translator: Translator, batch: list[Request]) -> list[list[Output]]:
    """`Translator.outputs` in one of several processes, which share the cores."""
    torch.set_num_threads(1)
    ((_, outputs),) = translator.outputs([batch])
    return outputs
