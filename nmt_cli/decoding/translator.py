"""Translation of lines: encode, sort by length into batches, search, restore the order."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nmt_cli import registry
from nmt_cli.data.parallel import Workers
from nmt_cli.decoding.around import Chain, chain_of
from nmt_cli.decoding.encoding import is_unknown, readable, request_of
from nmt_cli.decoding.engine import Engine, Request
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.decoding.outputs import Output, TargetScore, Translation
from nmt_cli.errors import UsageError, check_iterable
from nmt_cli.interfaces import Hypothesis
from nmt_cli.task import Task

# A window of few sentences is divided among workers into batches of at least so many.
SHARE = 8
# With so many sentences for each worker, each gets two batches or more.
TWO_SHARES = 48


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
        """Raise UsageError if the task, the model or the engine does not have an option."""
        self.engine.check(self.options)
        _ = self.task, self.chain, self.search

    @cached_property
    def task(self) -> Task:
        """Makes ids of text, and text of ids. Extras of the kind `encoding` change it."""
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
        if self.chain.allows_unknown:
            search = dataclasses.replace(search, unknown=True)
        return search

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
            prefixes: the text that each output must begin with, or "".
            beam: the beam size; 1 is greedy search.
            alpha: the exponent of the length penalty.
            nbest: the number of outputs of each line, of which `translate` returns the best.
            exact_stopping: search on until no hypothesis can beat the outputs.
            min_length, max_length: of an output, in tokens.
            max_length_offset: the maximum output length is the source's plus this.
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
            DataError: the task cannot read a prefix, or it has more than `max_source_length`
                tokens.
            NmtError: the search of one line runs out of memory.
        """
        translations = self.translate_detailed(lines, prefixes=prefixes, **options)
        return [translation.text for translation in translations]

    def translate_detailed(
        self,
        lines: Iterable[str],
        *,
        prefixes: Iterable[str] | None = None,
        **options: Any,
    ) -> Iterator[Translation]:
        """Yield the translation of each line, with scores, subwords and `nbest` outputs.

        `lines` may be endless.

        Args and errors: as `translate`.
        """
        check_iterable(lines, "a list of lines ([line] for one line)")
        if prefixes is not None:
            check_iterable(prefixes, "a list of prefixes, one for each line")
        chosen = self.options.replaced(options)
        translator = self
        if chosen != self.options:
            translator = dataclasses.replace(self, options=chosen)
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
        """Translate these lines together. Return one result for each, in order.

        Args:
            advance: called with the lines translated since the last call.
            first: the number of the first line in the whole input, on which samples depend.
            prefixes: the text that each output must begin with, or "".
            workers: processes whose state is this translator. The translations depend on their
                number by rounding only.

        Raises:
            UsageError: there are prefixes, and an output cannot begin with one.
        """
        if prefixes is not None:
            self.chain.check_prefix()
        readings = [self.chain.read(readable(line)) for line in lines]
        texts = list[str]()
        numbers = list[int]()
        line_of = list[int]()  # the place of each text's line
        for place, reading in enumerate(readings):
            for part, text in enumerate(reading.texts):
                texts.append(text)
                # No two texts may have the same number, as they would have the same samples.
                numbers.append(first + place + (part << 32))
                line_of.append(place)
        waiting = Counter(line_of)  # the texts of each line that are not translated yet

        def done(places: Iterable[int]) -> None:
            places_of_lines = [line_of[place] for place in places]
            waiting.subtract(places_of_lines)
            complete = [place for place in dict.fromkeys(places_of_lines) if not waiting[place]]
            advance([lines[place] for place in complete])

        translations = iter(
            self.translate_texts(texts, done, numbers=numbers, prefixes=prefixes, workers=workers)
        )
        results = []
        for reading in readings:
            of_line = itertools.islice(translations, len(reading.texts))
            results.append(self.chain.write(of_line, reading.layers))
        return results

    def translate_texts(
        self,
        texts: Sequence[str],
        done: Callable[[Iterable[int]], None] = lambda places: None,
        *,
        numbers: Sequence[int] | None = None,
        prefixes: Sequence[str] | None = None,
        workers: Workers | None = None,
    ) -> list[Translation]:
        """Translate lines or parts of lines that the chain has read. Return one result for each.

        Args:
            done: called with the places of the texts translated since the last call.
            numbers: of the texts, on which samples depend, by default from 1.
            prefixes, workers: as for `translate_window`.
        """
        if numbers is None:
            numbers = range(1, len(texts) + 1)
        if prefixes is None:
            prefixes = [""] * len(texts)
        requests = [
            request_of(self.task, self.options, number, text, prefix)
            for number, text, prefix in zip(numbers, texts, prefixes, strict=True)
        ]
        done([place for place, request in enumerate(requests) if not request.ids])
        results = [_empty(text) for text in texts]
        places = {number: place for place, number in enumerate(numbers)}
        parallel = workers.processes if workers else self.engine.parallel
        batches = list(self._batches([request for request in requests if request.ids], parallel))
        if workers and len(batches) > 1:
            outputs_of_batches = workers.map(_outputs_of_worker, batches)
        else:
            outputs_of_batches = self.outputs(batches)
        for batch, outputs_of_batch in outputs_of_batches:
            for request, outputs in zip(batch, outputs_of_batch, strict=True):
                results[places[request.number]] = self._translation(request, outputs)
            done([places[request.number] for request in batch])
        return results

    def _translation(self, request: Request, outputs: list[Output]) -> Translation:
        source_length = len(request.ids)
        return Translation(
            request.line,
            outputs,
            source_length,
            truncated=request.truncated,
            unknown=is_unknown(self.task, request.ids),
            longest=max(source_length, *(len(output.ids) for output in outputs)),
        )

    def score_targets(
        self, sources: Iterable[str], targets: Iterable[str], *more: Any
    ) -> list[TargetScore]:
        """Return the log-probability of each target as the output of its source.

        The entry point `score_targets` of the group `nmt.methods` has the function, and describes
        its arguments.
        """
        scores: list[TargetScore] = registry.method("score_targets")(self, sources, targets, *more)
        return scores

    @property
    def batch_tokens(self) -> int:
        return self.options.batch_tokens or self.engine.sizes.batch_tokens

    @property
    def read_ahead(self) -> int:
        return self.options.read_ahead or self.engine.sizes.read_ahead

    def _windows(
        self, lines: Iterable[str], prefixes: Iterable[str] | None
    ) -> Iterator[Translation]:
        rest_of_lines = iter(lines)
        rest_of_prefixes: Iterator[str] = iter(())
        if prefixes is not None:  # an array has no truth value
            rest_of_prefixes = iter(prefixes)
        first = 1
        while True:
            window = list(itertools.islice(rest_of_lines, self.read_ahead))
            if not window:
                break
            of_window = None
            if prefixes is not None:
                of_window = list(itertools.islice(rest_of_prefixes, len(window)))
                if len(of_window) < len(window):
                    count = first - 1 + len(of_window)
                    raise UsageError(
                        f"there are more lines than prefixes ({count}): give one for each line"
                    )
            yield from self.translate_window(window, first=first, prefixes=of_window)
            first += len(window)
        if list(itertools.islice(rest_of_prefixes, 1)):
            raise UsageError(
                f"there are more prefixes than lines ({first - 1}): give one for each line"
            )

    def _batches(self, requests: Sequence[Request], parallel: int = 1) -> Iterator[list[Request]]:
        """Group lines by length, the longest first, into batches of at most `batch_tokens`.

        There are at least `parallel` batches, if none has fewer than `SHARE` lines then. If there
        are many lines, several workers get at least two each, so that they end together.
        """
        shares = max(1, min(parallel, len(requests) // SHARE))
        if 1 < parallel <= len(requests) // TWO_SHARES:
            shares = 2 * parallel
        hypotheses = self.engine.sizes.hypotheses
        most = max(1, min(hypotheses // self.search.beam, -(-len(requests) // shares)))
        batch_tokens = self.batch_tokens
        batch: list[Request] = []
        for request in sorted(requests, key=lambda request: -len(request.ids)):
            if batch:
                length = len(batch[0].ids) + 1  # with EOS
                if (len(batch) + 1) * length > batch_tokens or len(batch) == most:
                    yield batch
                    batch = []
            batch.append(request)
        if batch:
            yield batch

    def outputs(
        self, batches: Sequence[list[Request]]
    ) -> Iterator[tuple[list[Request], list[list[Output]]]]:
        """Translate batches. Yield each with the outputs of its lines."""
        searched = self.engine.search(batches, self.search, self.options)
        for batch, hypotheses_of_batch in zip(batches, searched, strict=True):
            outputs = []
            for request, hypotheses in zip(batch, hypotheses_of_batch, strict=True):
                outputs.append([self._output(hypothesis, request) for hypothesis in hypotheses])
            yield batch, self.chain.revise(batch, outputs)

    def _output(self, hypothesis: Hypothesis, request: Request) -> Output:
        ids = hypothesis.tokens
        text, repairs = self.task.repaired(ids, request.line)
        tokens = self.task.target_tokens(ids)
        return Output(text, hypothesis.score, tokens, hypothesis.token_scores, repairs, ids)


def _empty(text: str) -> Translation:
    output = Output("", score=0.0, tokens=[], token_scores=[])
    return Translation(text, [output], source_length=0, truncated=False)


def _outputs_of_worker(translator: Translator, batch: list[Request]) -> list[list[Output]]:
    """`Translator.outputs` in one of several processes."""
    ((_, outputs),) = translator.outputs([batch])
    return outputs
