"""The engine ctranslate2: search by CTranslate2 in an export of `nmt export --to ctranslate2`."""

from __future__ import annotations

import math
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ctranslate2

from nmt_cli import __version__, checkpoint
from nmt_cli.annexes.exchange.export.formats import fingerprint_of, record_of
from nmt_cli.cores import Sizes, available_cores
from nmt_cli.decoding.around import flags_of
from nmt_cli.decoding.engine import Loading, Request
from nmt_cli.decoding.length_penalty import length_penalty
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.errors import NmtError, UsageError, command_line, gpu_called, shown
from nmt_cli.files.staging import alone
from nmt_cli.interfaces import BOS, EOS, PAD, SPECIAL_SYMBOLS, Hypothesis
from nmt_cli.registry import component_of
from nmt_cli.task import Task

if TYPE_CHECKING:
    from nmt_cli.model import Model

FORMAT = "ctranslate2"
# Rows of an export's tables of positions: the longest source and the longest output, with EOS.
POSITIONS = 2048
# On a CPU, more hypotheses are slower, unlike in nmt's own search.
SIZES = Sizes(4096, 128, 1024)
SIZES_OF_GPU = Sizes(32_768, 1024, 8192, 8192)
AHEAD = 2  # batches that are started for each thread. An interruption waits for them.

Ids = Sequence[int]


def load(loading: Loading) -> CTranslate2Engine:
    """See `Load` in `decoding/engine.py`.

    Takes an export, too. The export of a checkpoint is kept beside it. `workers` are threads, each
    of which translates a batch, by default one for each core.
    """
    if len(loading.checkpoints) != 1:
        raise UsageError("CTranslate2 cannot be used with an ensemble: give one checkpoint")
    gpu = gpu_called(loading.device, ctranslate2.get_cuda_device_count)
    if gpu is not None:
        import torch  # noqa: F401  # loads the libraries of CUDA that CTranslate2 needs

    (path,) = loading.checkpoints
    folder = path
    if record_of(path).get("format") != FORMAT:
        folder = kept_export(path, loading.say)
    task = checkpoint.load_task(folder / checkpoint.TASK)
    threads = loading.workers
    if threads is None and gpu is None:
        threads = available_cores()
        limit, *_ = os.environ.get("OMP_NUM_THREADS", "").split(",")  # a list for nested levels
        if limit.isdecimal():
            threads = min(threads, int(limit))
    dtype = loading.dtype
    if dtype == "auto":
        dtype = "float32"
    if loading.options.settings(task).beam > 1:
        # CTranslate2 leaves out forbidden tokens before its softmax, and nmt after it. CTranslate2
        # offers no other order.
        loading.say(
            "CTranslate2's beam search ranks by length^alpha, and without the probability of the "
            "unknown word, so a few outputs may differ from nmt's own, and many where the "
            "vocabulary lacks words of the text"
        )
    return load_engine(folder, task, gpu, dtype, threads or 1, loading.scores)


def kept_export(path: Path, say: Callable[[str], None]) -> Path:
    """Return the export beside a checkpoint, or beside a run's newest checkpoint.

    If there is none, it is written.

    Raises:
        UsageError: it cannot be written there, or `path` is another export.
        CheckpointError: as `write_export`.
    """
    folder = checkpoint.locate(path, say).resolve()
    place = folder.with_name(f".{folder.name}.{FORMAT}")
    with alone(folder):
        record = record_of(place)
        if (record.get("checkpoint"), record.get("nmt")) == (fingerprint_of(folder), __version__):
            return place
        if not os.access(folder.parent, os.W_OK):
            raise UsageError(
                f"{folder.parent}: cannot be written, and the export of a checkpoint is kept "
                "there. Export it to another place: "
                f"{command_line('export', folder, '--to', FORMAT, '--out', 'DIR')}"
            )
        from nmt_cli.annexes.exchange.export.writing import write_export  # imports torch

        say(f"exporting to {place}, which is kept")
        write_export(folder, FORMAT, place, overwrite=True, say=say)
    return place


def tokens_of(task: Task) -> tuple[list[str], list[str]]:
    """Return the token of each source id, and of each target id, in an export.

    Raises:
        UsageError: a token is twice in a vocabulary.
    """
    special = list(SPECIAL_SYMBOLS)
    source = special + task.source_tokens(range(task.source_vocabulary_size))[len(special) :]
    target = special + task.target_tokens(range(task.target_vocabulary_size))[len(special) :]
    for side, tokens in (("source", source), ("target", target)):
        token, count = Counter(tokens).most_common(1)[0]
        if count > 1:
            raise UsageError(
                f"CTranslate2 needs distinct tokens, and the {side} vocabulary has {shown(token)} "
                "twice"
            )
    return source, target


def load_engine(
    folder: Path, task: Task, gpu: int | None, dtype: str, threads: int, scores: bool
) -> CTranslate2Engine:
    """Return the engine of the export `folder`, which translates `threads` batches at a time.

    Without a `gpu`, it computes on the CPU.

    Raises:
        UsageError: CTranslate2 does not compute in `dtype` on this device.
        NmtError: it cannot load the model.
    """
    try:
        translator = ctranslate2.Translator(
            str(folder),
            device="cpu" if gpu is None else "cuda",
            device_index=gpu or 0,
            compute_type=dtype,
            inter_threads=threads,
            intra_threads=1,
        )
    except ValueError as error:
        raise UsageError(f"--dtype {dtype}: CTranslate2: {error}") from error
    except RuntimeError as error:
        raise NmtError(
            f"{folder}: CTranslate2 cannot load this model: {error}. Export it again."
        ) from error
    sizes = SIZES if gpu is None else SIZES_OF_GPU
    return CTranslate2Engine(task, translator, *tokens_of(task), sizes, scores)


@dataclass
class _Output:
    """An output of CTranslate2."""

    ids: list[int]  # without EOS
    ended: bool  # by EOS. Otherwise it was cut at its limit.
    score: float
    token_scores: list[float] = field(default_factory=list)

    def order(self) -> tuple[bool, float]:
        """The best output is the first one, and outputs that are cut come last."""
        return not self.ended, -self.score


class _Started(NamedTuple):
    """A batch that CTranslate2 translates in one of its threads."""

    requests: Sequence[Request]
    results: list[Any]


@dataclass(frozen=True)
class CTranslate2Engine:
    """An `Engine`.

    With `scores`, the scores of outputs and of their tokens are computed in another pass over them.
    Without, there are no token scores, and the scores leave out the tokens that the search did not
    allow, such as the unknown word.
    """

    task: Task
    translator: ctranslate2.Translator  # of an export
    source_tokens: Sequence[str]  # as `tokens_of`
    target_tokens: Sequence[str]
    sizes: Sizes
    scores: bool = True
    models: Sequence[Model] = ()
    folders: Sequence[Path] = ()
    positions: None = None

    @property
    def parallel(self) -> int:
        return int(self.translator.num_translators)

    def workers(self, translator: Any, count: int | None) -> nullcontext[None]:
        """See `Engine`. CTranslate2 has threads."""
        return nullcontext()

    def check(self, options: TranslateOptions) -> None:
        for kind in ("search", "length_penalty", "constraint"):
            for config in options.used(kind):
                if component_of(config).name != "ngrams":
                    raise UsageError(f"{flags_of(config)} cannot be used with --engine ctranslate2")
        if options.search.exact_stopping:
            raise UsageError("--exact-stopping cannot be used with --engine ctranslate2")
        if options.max_source_length >= POSITIONS:
            raise UsageError(
                f"--max-source-length {options.max_source_length}: CTranslate2 has positions for "
                f"{POSITIONS - 1} tokens"
            )

    def search(
        self,
        batches: Sequence[Sequence[Request]],
        search: SearchSettings,
        options: TranslateOptions,
    ) -> Iterator[list[list[Hypothesis]]]:
        """See `Engine`.

        CTranslate2 divides a log-probability by length^alpha during the search. Of its hypotheses,
        the best by the penalty of section 6.1 are returned, as `beam_search` orders them.
        """
        started: deque[_Started] = deque()
        no_repeat_ngram = options.get("no_repeat_ngram") or 0
        for batch in batches:
            requests = []
            for request in batch:
                if request.prefix:
                    raise UsageError("prefixes cannot be used with --engine ctranslate2")
                limit = min(request.limit, POSITIONS - 1)
                requests.append(request._replace(limit=limit))
            started.append(self._start(requests, search, no_repeat_ngram))
            if len(started) > AHEAD * self.parallel:
                yield self._finish(started.popleft(), search)
        while started:
            yield self._finish(started.popleft(), search)

    def log_probabilities(
        self, sources: Sequence[Ids], targets: Sequence[Ids]
    ) -> list[list[float]]:
        """Return the log-probability of each token of each target, and of EOS after them."""
        source_words = [_words(self.source_tokens, ids) for ids in sources]
        target_words = [_words(self.target_tokens, ids) for ids in targets]
        with _named_errors():
            results = self.translator.score_batch(source_words, target_words, max_input_length=0)
        return [result.log_probs for result in results]

    def _start(
        self, requests: Sequence[Request], search: SearchSettings, no_repeat_ngram: int
    ) -> _Started:
        longest = max(request.limit for request in requests) + 1  # EOS
        never = [SPECIAL_SYMBOLS[PAD], SPECIAL_SYMBOLS[BOS]]
        if search.never_generated > 0:
            never += self.target_tokens[-search.never_generated :]
        results = self.translator.translate_batch(
            [_words(self.source_tokens, request.ids) for request in requests],
            asynchronous=True,
            beam_size=search.beam,
            num_hypotheses=search.beam,
            length_penalty=search.alpha,
            min_decoding_length=min(search.min_length, longest),
            max_decoding_length=longest,
            no_repeat_ngram_size=no_repeat_ngram,
            disable_unk=not search.unknown,
            suppress_sequences=[[token] for token in never],
            max_input_length=0,
            return_end_token=True,
            return_scores=True,
        )
        return _Started(requests, results)

    def _finish(self, batch: _Started, search: SearchSettings) -> list[list[Hypothesis]]:
        """Wait for the results of a batch, and return its outputs."""
        with _named_errors():
            results = [result.result() for result in batch.results]
        rows = []
        for request, result in zip(batch.requests, results, strict=True):
            rows.append(self._best(request, result, search))
        if self.scores:
            self._score(batch.requests, rows, search.alpha)
        hypotheses = []
        for row in rows:
            hypotheses.append([Hypothesis(o.ids, o.score, o.token_scores) for o in row])
        return hypotheses

    def _best(self, request: Request, result: Any, search: SearchSettings) -> list[_Output]:
        """Return the `nbest` best outputs of a result.

        There are fewer if outputs that were cut are the same: CTranslate2 searches up to the
        largest limit of the batch.
        """
        outputs = []
        for words, score in zip(result.hypotheses, result.scores, strict=True):
            ids = [self._ids[word] for word in words]
            length = len(ids)
            score = score * length**search.alpha / length_penalty(length, search.alpha)
            if ids[-1] == EOS and length <= request.limit + 1:
                outputs.append(_Output(ids[:-1], True, score))
            else:
                outputs.append(_Output(ids[: request.limit], False, score))
        best: dict[tuple[int, ...], _Output] = {}
        for output in sorted(outputs, key=_Output.order):
            best.setdefault(tuple(output.ids), output)
        return [*best.values()][: search.nbest]

    def _score(
        self, requests: Sequence[Request], rows: Sequence[list[_Output]], alpha: float
    ) -> None:
        """Set the scores of the outputs of each sentence, and sort the outputs by them."""
        sources = []
        outputs = []
        for request, row in zip(requests, rows, strict=True):
            sources += [request.ids] * len(row)
            outputs += row
        scores = self.log_probabilities(sources, [output.ids for output in outputs])
        for output, token_scores in zip(outputs, scores, strict=True):
            if not output.ended:
                token_scores = token_scores[:-1]  # without EOS
            output.token_scores = token_scores
            output.score = math.fsum(token_scores) / length_penalty(len(token_scores), alpha)
        for row in rows:
            row.sort(key=_Output.order)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.target_tokens)}


def _words(tokens: Sequence[str], ids: Ids) -> list[str]:
    return [tokens[i] for i in ids]


@contextmanager
def _named_errors() -> Iterator[None]:
    """Name CTranslate2 in its errors."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise NmtError(f"CTranslate2: {error}") from error
