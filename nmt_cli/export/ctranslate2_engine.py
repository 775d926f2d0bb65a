"""Search by CTranslate2, in a model that `nmt export --to ctranslate2` wrote."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import ctranslate2
import torch

from nmt_cli.decoding.beam_search import length_penalty
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import DTYPES, SearchOptions, TranslateOptions
from nmt_cli.errors import NmtError, UsageError
from nmt_cli.interfaces import BOS, EOS, PAD, SPECIAL_SYMBOLS, Hypothesis, Task

POSITIONS = 2048
"""Rows of an export's tables of positions: the longest source and the longest output, with EOS."""

Ids = Sequence[int]


def tokens_of(task: Task) -> tuple[list[str], list[str]]:
    """Return the token of each source id, and of each target id, in an export.

    Raises:
        UsageError: a token is twice in a vocabulary.
    """
    source = task.source_tokens(range(task.source_vocabulary_size))
    target = task.target_tokens(range(task.target_vocabulary_size))
    first = len(SPECIAL_SYMBOLS)
    sides = ([*SPECIAL_SYMBOLS, *source[first:]], [*SPECIAL_SYMBOLS, *target[first:]])
    for side, tokens in zip(("source", "target"), sides, strict=True):
        if len({*tokens}) < len(tokens):
            twice = next(token for token in tokens if tokens.count(token) > 1)
            raise UsageError(f"CTranslate2 needs distinct tokens, and the {side} vocabulary has {twice!r} twice")
    return sides


def load_engine(
    folder: Path, task: Task, device: torch.device, dtype: str, threads: int, token_scores: bool
) -> CTranslate2Engine:
    """Return the engine of the export `folder`, which translates `threads` batches at a time.

    Raises:
        UsageError: CTranslate2 does not compute in `dtype` on this device.
        NmtError: it cannot load the model.
    """
    place = {"device": device.type, "device_index": device.index or 0}
    known = ctranslate2.get_supported_compute_types(**place)
    if dtype not in known:
        ours = [name for name in DTYPES if name in known]
        raise UsageError(f"--dtype {dtype}: CTranslate2 computes on this {device.type} in {' or '.join(ours)}")
    try:
        translator = ctranslate2.Translator(
            str(folder),
            **place,
            compute_type=dtype,
            inter_threads=threads,
            intra_threads=1,
            max_queued_batches=-1,  # a window is bounded already
        )
    except (RuntimeError, ValueError) as error:
        raise NmtError(f"{folder}: CTranslate2 cannot load this model: {error}. Export it again.") from error
    return CTranslate2Engine(translator, *tokens_of(task), token_scores)


@dataclass(frozen=True)
class CTranslate2Engine:
    """An `Engine`.

    Args:
        translator: of an export.
        source_tokens, target_tokens: as `tokens_of`.
        token_scores: whether to compute the log-probability of each token, which costs another pass over the outputs;
            else hypotheses have none.
    """

    translator: ctranslate2.Translator
    source_tokens: Sequence[str]
    target_tokens: Sequence[str]
    token_scores: bool = True

    def check(self, options: TranslateOptions) -> None:
        """See `Engine`."""
        chosen = {
            "--sample": options.sampling.sample,
            "--constrained": options.constrained,
            "--replace-unknown": options.replace_unknown,
        }
        for flag, given in chosen.items():
            if given:
                raise UsageError(f"CTranslate2 does not do this as nmt does: leave out {flag} or --engine ctranslate2")
        if options.max_source_length >= POSITIONS:
            raise UsageError(
                f"--max-source-length {options.max_source_length}: CTranslate2 has positions for {POSITIONS - 1} tokens"
            )

    def search(
        self, batches: Sequence[Sequence[Request]], options: TranslateOptions
    ) -> Iterator[list[list[Hypothesis]]]:
        """See `Engine`.

        CTranslate2 divides a log-probability by length^alpha during the search. Of the hypotheses that it found, the
        best by the penalty of section 6.1 are returned, with scores as `beam_search` gives them.
        """
        started = [self._start(batch, options) for batch in batches]
        for batch, results in zip(batches, started, strict=True):
            found = [
                self._best(request, _finished(result), options.search)
                for request, result in zip(batch, results, strict=True)
            ]
            yield self._with_token_scores(batch, found) if self.token_scores else found

    def log_probabilities(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """Return the log-probability of each token of each target, and of EOS after them."""
        results = self.translator.score_batch(
            [_words(self.source_tokens, ids) for ids in sources],
            [_words(self.target_tokens, ids) for ids in targets],
            max_input_length=0,
        )
        return [result.log_probs for result in results]

    def _start(self, batch: Sequence[Request], options: TranslateOptions) -> list[Any]:
        """Have CTranslate2 translate a batch in one of its threads; return the results to come."""
        search = options.search
        longest = max(request.limit for request in batch) + 1  # EOS
        results: list[Any] = self.translator.translate_batch(
            [_words(self.source_tokens, request.source) for request in batch],
            asynchronous=True,
            beam_size=search.beam,
            num_hypotheses=search.beam,
            length_penalty=search.alpha,
            min_decoding_length=search.min_length,
            max_decoding_length=min(longest, POSITIONS),
            no_repeat_ngram_size=options.no_repeat_ngram or 0,
            disable_unk=not search.unknown,
            suppress_sequences=[[SPECIAL_SYMBOLS[PAD]], [SPECIAL_SYMBOLS[BOS]]],
            max_input_length=0,
            return_end_token=True,
            return_scores=True,
        )
        return results

    def _best(self, request: Request, result: Any, search: SearchOptions) -> list[Hypothesis]:
        """The `nbest` best outputs that CTranslate2 found; those that are cut at the limit come last."""
        ended, cut = [], []
        for words, score in zip(result.hypotheses, result.scores, strict=True):
            tokens = [self._ids[word] for word in words]
            if tokens[-1:] == [EOS] and len(tokens) <= request.limit + 1:
                log_probability = score * len(tokens) ** search.alpha
                ended.append(Hypothesis(tokens[:-1], _score(log_probability, len(tokens), search), []))
            else:  # the batch has a longer limit
                tokens = tokens[: request.limit]
                scores = self.log_probabilities([request.source], [tokens])[0][:-1]
                cut.append(Hypothesis(tokens, _score(math.fsum(scores), len(tokens), search), scores))
        ranked = (sorted(part, key=lambda hypothesis: -hypothesis.score) for part in (ended, cut))
        return [hypothesis for part in ranked for hypothesis in part][: search.nbest]

    def _with_token_scores(self, batch: Sequence[Request], found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        without = [
            (request.source, each.tokens)
            for request, hypotheses in zip(batch, found, strict=True)
            for each in hypotheses
            if not each.token_scores
        ]
        scores = iter(self.log_probabilities([source for source, _ in without], [tokens for _, tokens in without]))
        return [
            [each if each.token_scores else replace(each, token_scores=next(scores)) for each in hypotheses]
            for hypotheses in found
        ]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.target_tokens)}


def _words(tokens: Sequence[str], ids: Ids) -> list[str]:
    return [tokens[i] for i in ids]


def _score(log_probability: float, length: int, search: SearchOptions) -> float:
    """Divide by the length penalty of section 6.1."""
    return log_probability / length_penalty(torch.tensor(float(length)), search.alpha).item()


def _finished(result: Any) -> Any:
    """Wait for a result."""
    try:
        return result.result()
    except (RuntimeError, ValueError) as error:
        raise NmtError(f"CTranslate2: {error}") from error
