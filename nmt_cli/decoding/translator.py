"""Translation of lines: encode, sort by length into batches, search, and return the results in order."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.data.parallel import Workers
from nmt_cli.decoding.alignment import WORD, Aligner, Links, links_of
from nmt_cli.decoding.encoding import check_tag, is_unknown, plain, request_of, tagged
from nmt_cli.decoding.engine import Engine, Request
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.decoding.outputs import Output, TargetScore, Translation
from nmt_cli.decoding.placing import UNITS, Placing
from nmt_cli.decoding.sampling import AT_A_TIME
from nmt_cli.decoding.sentences import Split, joined, splitter
from nmt_cli.decoding.unknown_words import UnknownWords, read_dictionary
from nmt_cli.errors import UsageError, check_iterable
from nmt_cli.interfaces import Hypothesis
from nmt_cli.task import Task

LARGEST_BATCH = {"cpu": 128, "cuda": 1024}
"""Hypotheses in a batch: a CPU is as fast with 128 as with more. Bounds the log-probabilities [128, V] of a step."""

BATCH_TOKENS = {"cpu": 4096, "cuda": 32_768}
"""Source tokens in a batch, if the options do not say how many."""

SHARE = 8
"""Least sentences of a batch where a window of few sentences is divided among workers."""


@dataclass(frozen=True)
class Translator:
    """A model and its task, ready to translate. Immutable, so threads may share it.

    Args:
        engine: the model, its task and the search.
        options: of every translation, where a call gives no others.
        dictionary: translations of source words, for `replace_unknown`.
    """

    engine: Engine
    options: TranslateOptions = field(default_factory=TranslateOptions)
    dictionary: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raise UsageError if an option is set that task, model or engine does not have, or that needs an extra."""
        self.engine.check(self.options)
        _ = self.search
        check_tag(self.options.tag or "", self.task.symbols, f"--tag {self.options.tag}")
        if self.options.replace_unknown:
            _ = self._unknown_words
        _ = self._aligner, self._placing
        _ = self.split

    @property
    def task(self) -> Task:
        """What makes ids of text, and text of ids."""
        return self.engine.task

    @cached_property
    def search(self) -> SearchSettings:
        """The options of the search, with the task's defaults."""
        return self.options.settings(self.task)

    @cached_property
    def split(self) -> Split:
        """The function that divides a line into its sentences; with no `split_sentences`, the line is the only one."""
        if not self.options.split_sentences:
            if self.options.sentence_language is not None:
                raise UsageError("--sentence-language needs --split-sentences")
            return lambda line: [line]
        return splitter(self.task, self.options.sentence_language)

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

        The options are the flags of `nmt translate`, for this call. None is the option that the translator was loaded
        with, and then the flag's default.

        Args:
            prefixes: the text that each output must begin with; "" for none.
            beam: the beam size; 1 is greedy search.
            alpha: the exponent of the length penalty.
            nbest: the number of outputs of each line, of which `translate` returns the best.
            min_length, max_length: of an output, in tokens.
            max_length_offset: the maximum output length is that of the source plus this.
            unknown: whether outputs may have the unknown word.
            sample: draw outputs at random, with `temperature`, from the `top_k` most probable tokens, or from the
                fewest whose probabilities sum to `top_p`. The same `seed` gives the same outputs.
            batch_tokens: source tokens in a batch.
            read_ahead: lines that are sorted by length at once.
            tag: symbols to put before each line, such as "<2de>".
            max_source_length: source tokens of a line that are translated.
            no_repeat_ngram: the length of token sequences that an output has only once.
            replace_unknown: replace unknown words by translations of source words.
            align: align the words of outputs, in `Output.alignment`, by attention.
            markup: keep inline tags around the same words.
            protect: a regular expression of what is copied to the output.
            glossary: a file of terms and their translations.
            constrained: allow only the outputs that the task defines as well-formed.
            split_sentences: translate the sentences of a line one by one, in the language `sentence_language`.

        Raises:
            UsageError: an option is out of range, `lines` or `prefixes` are not strings, or their numbers differ.
            DataError: a prefix has more than `max_source_length` tokens, or the task cannot read it.
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
        """Yield the translation of each line, with scores, subwords and `nbest` outputs; `lines` may be endless.

        Args and errors: as `translate`.
        """
        check_iterable(lines, "a list of lines ([line] for one line)")
        if prefixes is not None:
            check_iterable(prefixes, "a list of prefixes, one for each line")
        translator = dataclasses.replace(self, options=self.options.replaced(options))
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
            workers: processes whose state is this translator. The translations depend on their number by rounding only.

        Raises:
            UsageError: there are prefixes, and `split_sentences` or one of `places` is set, or the engine has none.
        """
        if self.options.split_sentences:
            if prefixes is not None:
                raise UsageError("--split-sentences cannot be used with prefixes: it joins the outputs of sentences")
            lines = list(map(plain, lines))
            parts = [self.split(line) for line in lines]
            translations = self.translate_sentences(list(itertools.chain.from_iterable(parts)), workers=workers)
            advance(lines)
            return joined(lines, parts, translations)
        if self._placing is None:
            return self.translate_sentences(lines, advance, first, prefixes, workers)
        if prefixes is not None:
            raise UsageError("--markup, --protect and --glossary cannot be used with prefixes")
        lines = list(map(plain, lines))
        texts, spans = zip(*map(self._placing.read, lines), strict=True) if lines else ((), ())
        translations = self.translate_sentences(texts, advance, first, prefixes, workers)
        return list(map(self._placing.placed, translations, lines, spans))

    def translate_sentences(
        self,
        lines: Sequence[str],
        advance: Callable[[Sequence[str]], None] = lambda lines: None,
        first: int = 1,
        prefixes: Sequence[str] | None = None,
        workers: Workers | None = None,
    ) -> list[Translation]:
        """As `translate_window`, of lines that `split` has divided, or that are not divided."""
        pairs = zip(lines, [""] * len(lines) if prefixes is None else prefixes, strict=True)
        requests = [request_of(self.task, self.options, number, *pair) for number, pair in enumerate(pairs, first)]
        advance([request.line for request in requests if not request.ids])
        results = [Translation(line, [Output("", 0.0, [], [])], 0, truncated=False) for line in lines]
        parallel = workers.processes if workers else self.engine.parallel or 1
        batches = list(self._batches([request for request in requests if request.ids], parallel))
        several = workers if len(batches) > 1 else None
        for batch, outputs in several.map(_outputs_of_worker, batches) if several else self.outputs(batches):
            for request, found in zip(batch, outputs, strict=True):
                longest = max(map(len, (request.ids, *(output.ids for output in found))))
                about = len(request.ids), request.truncated, is_unknown(self.task, request.ids), longest
                results[request.number - first] = Translation(request.line, found, *about)
            advance([request.line for request in batch])
        return results

    def score_targets(self, sources: Iterable[str], targets: Iterable[str], *more: Any) -> list[TargetScore]:
        """Return the log-probability of each target as the output of the source at the same position.

        The entry point `score_targets` of the group `nmt.methods` has the function, and describes its arguments.
        """
        (method,) = entry_points(group="nmt.methods", name="score_targets")
        scores: list[TargetScore] = method.load()(self, sources, targets, *more)
        return scores

    @property
    def batch_tokens(self) -> int:
        return self.options.batch_tokens or BATCH_TOKENS[self.engine.device.type]

    def _windows(self, lines: Iterable[str], prefixes: Iterable[str] | None) -> Iterator[Translation]:
        rest, beginnings = iter(lines), None if prefixes is None else iter(prefixes)
        first = 1
        while window := list(itertools.islice(rest, self.options.read_ahead)):
            theirs = None if beginnings is None else list(itertools.islice(beginnings, len(window)))
            if theirs is not None and len(theirs) < len(window):
                read = first - 1 + len(theirs)
                raise UsageError(f"there are more lines than prefixes ({read}): give one for each line")
            yield from self.translate_window(window, first=first, prefixes=theirs)
            first += len(window)
        if list(itertools.islice(beginnings or (), 1)):
            raise UsageError(f"there are more prefixes than lines ({first - 1}): give one for each line")

    def _batches(self, requests: Sequence[Request], parallel: int = 1) -> Iterator[list[Request]]:
        """Group lines by length, the longest first, into batches of at most `batch_tokens`, `parallel` at a time."""
        width = min(self.search.nbest, AT_A_TIME) if self.options.sampling.sample else self.search.beam
        shares = max(1, min(parallel, len(requests) // SHARE))
        most = max(1, min(LARGEST_BATCH[self.engine.device.type] // width, -(-len(requests) // shares)))
        batch: list[Request] = []
        for request in sorted(requests, key=lambda request: -len(request.ids)):
            longest = len((batch or [request])[0].ids) + 1
            full = (len(batch) + 1) * longest > self.batch_tokens or len(batch) == most
            if batch and full:
                yield batch
                batch = []
            batch.append(request)
        if batch:
            yield batch

    def outputs(self, batches: Sequence[list[Request]]) -> Iterator[tuple[list[Request], list[list[Output]]]]:
        """Translate batches; yield each with the outputs of its lines."""
        for batch, found in zip(batches, self.engine.search(batches, self.search, self.options), strict=True):
            lines = list(zip(batch, found, strict=True))
            pairs = [(line.ids, each.tokens) for line, hypotheses in lines for each in hypotheses]
            weights = self._aligner.weights(pairs) if self._aligner else [None] * len(pairs)
            own = iter(weights)
            yield batch, [[self._output(each, line, next(own)) for each in hypotheses] for line, hypotheses in lines]

    def _output(self, hypothesis: Hypothesis, line: Request, weights: Tensor | None) -> Output:
        ids = hypothesis.tokens
        text, repairs = self.task.repaired(ids, line.line)
        links: Links = []
        if weights is not None:
            text, links = self._aligned(text, ids, line, weights)
        tokens = self.task.target_tokens(ids)
        return Output(text, hypothesis.score, tokens, hypothesis.token_scores, repairs, ids, links)

    def _aligned(self, text: str, ids: Sequence[int], line: Request, weights: Tensor) -> tuple[str, Links]:
        """Return an output without unknown words, if they are replaced, and the links of its words."""
        raw, target = tagged(line.line.strip(), self.options), self.task.target_tokens(ids)
        if self.options.replace_unknown:
            target = self._unknown_words.replaced(ids, weights, raw)
            text = self.task.join_words(target)
        if not (self.options.align or self.options.places):
            return text, []
        source = self.task.source_words(raw) or self.task.source_tokens(line.ids)
        word = UNITS if self.options.places else WORD
        links = links_of(weights, source[: len(line.ids)], target, raw, text, word)
        tags = len(word.findall(self.options.tag or ""))
        return text, [(i - tags, j) for i, j in links if i >= tags]

    @cached_property
    def _unknown_words(self) -> UnknownWords:
        return UnknownWords(self.task, self.dictionary)

    @cached_property
    def _aligner(self) -> Aligner | None:
        wanted = self.options.align or self.options.replace_unknown or self.options.places
        return Aligner(self.engine.models, self.engine.device) if wanted else None

    @cached_property
    def _placing(self) -> Placing | None:
        options = self.options
        if not options.places:
            return None
        if self.task.text_vocabularies is None:
            raise UsageError(f"--markup, --protect and --glossary are for text, not for the task {self.task.name}")
        glossary = read_dictionary(Path(options.glossary), one_translation=True) if options.glossary else {}
        return Placing(bool(options.markup), options.protect or "", glossary, self.task.symbols)


def _outputs_of_worker(translator: Translator, batch: list[Request]) -> list[list[Output]]:
    """`Translator.outputs` in one of several processes, which share the cores."""
    torch.set_num_threads(1)
    ((_, outputs),) = translator.outputs([batch])
    return outputs
