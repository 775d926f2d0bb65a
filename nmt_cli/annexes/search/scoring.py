"""Log-probabilities of given targets, by one pass over whole sentences, as in training.

Letters: B sentences, T target length, N tokens of a batch, V vocabulary, M models, d their width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.data.batching import collate, length_buckets
from nmt_cli.decoding.beam_search import check_probabilities
from nmt_cli.decoding.encoding import Encoded, encoded
from nmt_cli.decoding.outputs import TargetScore
from nmt_cli.decoding.translator import Translator
from nmt_cli.device import in_halves
from nmt_cli.errors import DataError, UsageError, check_iterable
from nmt_cli.interfaces import PAD, Batch
from nmt_cli.model import Model

ROWS = 512  # rows of the logits [ROWS, V] that exist at a time

Ids = Sequence[int]


def score_targets(
    translator: Translator,
    sources: Iterable[str],
    targets: Iterable[str],
    advance: Callable[[Sequence[str]], None] = lambda sources: None,
    place: Callable[[int], str] = lambda position: f"target {position + 1}",
) -> list[TargetScore]:
    """Return the log-probability of each target as the output of its source.

    The options `batch_tokens` and `max_source_length` apply to both sides. Nothing is left out: an
    empty source is the end of the sentence alone, and unknown words have the probability of the
    unknown word.

    Args:
        advance: called with the sources of the targets scored since the last call.
        place: the name of the target at a position, for messages.

    Raises:
        UsageError: these are not two lists of strings of the same length, or the engine is not
            nmt's own.
        DataError: the task cannot read a target, such as a tree with unbalanced brackets.
        CheckpointError: a probability is NaN.
        NmtError: one pair does not fit in memory.
    """
    task, options, engine = translator.task, translator.options, translator.engine
    if not engine.models:
        raise UsageError("targets are scored by nmt's own engine: load the checkpoint with it")
    check_iterable(sources, "a list of sources")
    check_iterable(targets, "a list of targets")
    inputs = [encoded(line, task.encode_source, options.max_source_length) for line in sources]
    outputs = []
    for position, line in enumerate(targets):
        outputs.append(_encoded_target(translator, line, place(position)))
    if len(inputs) != len(outputs):
        raise UsageError(
            f"there are {len(inputs)} sources and {len(outputs)} targets: give one for each source"
        )

    def scored(positions: Sequence[int]) -> None:
        advance([inputs[i].line for i in positions])

    log_probabilities = token_log_probabilities(
        engine.models,
        [line.ids for line in inputs],
        [line.ids for line in outputs],
        engine.models[0].output_weight.device,
        translator.batch_tokens,
        scored,
    )
    results = []
    for source, target, scores in zip(inputs, outputs, log_probabilities, strict=True):
        result = TargetScore(
            source=source.line,
            target=target.line,
            tokens=task.target_tokens(target.ids),
            token_scores=scores[:-1] if target.truncated else scores,  # without a false end
            source_truncated=source.truncated,
            target_truncated=target.truncated,
        )
        results.append(result)
    return results


def _encoded_target(translator: Translator, line: str, place: str) -> Encoded:
    try:
        return encoded(line, translator.task.encode_target, translator.options.max_source_length)
    except DataError as error:
        raise DataError(f"{place}: {error}") from error


@torch.inference_mode()
def token_log_probabilities(
    models: Sequence[Model],
    sources: Sequence[Ids],
    targets: Sequence[Ids],
    device: torch.device,
    batch_tokens: int,
    advance: Callable[[Sequence[int]], None] = lambda positions: None,
) -> list[list[float]]:
    """Return the log-probability of each token of each target, and of EOS after them.

    The probabilities of several models are averaged at each token, as in `Ensemble`. The result of
    a pair does not depend on the others, up to rounding.

    Args:
        models: in evaluation mode, on `device`.
        sources, targets: ids without BOS and EOS. They may be empty.
        batch_tokens: maximum source tokens, and target tokens, in a batch, padding included.
        advance: called with the positions of the pairs scored since the last call.

    Raises:
        CheckpointError: a probability is NaN.
        NmtError: one pair does not fit in memory.
    """

    def scores_of(positions: Sequence[int]) -> list[list[float]]:
        batch = collate([sources[i] for i in positions], [targets[i] for i in positions])
        return _batch_scores(models, batch.to(device))

    def too_large(position: int) -> str:
        source, target = len(sources[position]), len(targets[position])
        return (
            f"out of memory on a source of {source} and a target of {target} tokens: "
            "use a smaller max_source_length"
        )

    results: list[list[float]] = [[] for _ in targets]
    buckets = length_buckets(_lengths(sources), _lengths(targets), batch_tokens)
    for bucket in reversed(buckets):  # the longest first
        positions = bucket.tolist()
        of_bucket = in_halves(scores_of, positions, too_large)
        for position, scores in zip(positions, of_bucket, strict=True):
            results[position] = scores
        advance(positions)
    return results


def _lengths(sentences: Sequence[Ids]) -> NDArray[np.int64]:
    """Return the number of tokens of each sentence, with EOS."""
    return np.array([len(ids) + 1 for ids in sentences], dtype=np.int64)


def _batch_scores(models: Sequence[Model], batch: Batch) -> list[list[float]]:
    real = batch.target_out != PAD  # [B, T]
    ids = batch.target_out[real]  # [N], the tokens of all sentences
    of_models = []
    for model in models:
        hidden = model.decoder_output(batch.source, batch.target_in)[real]  # [N, d]
        of_models.append(log_probabilities_of(ids, hidden, model))
    log_probabilities = torch.stack(of_models)  # [M, N]
    mean = log_probabilities.logsumexp(dim=0) - math.log(len(models))
    check_probabilities(mean)
    on_host = mean.clamp(max=0.0).cpu()  # at once: each sentence's copy would wait for a GPU
    of_sentences = torch.split(on_host, real.sum(dim=1).tolist())
    return [scores.tolist() for scores in of_sentences]


def log_probabilities_of(ids: Tensor, hidden: Tensor, model: Model) -> Tensor:
    """Return the log-probability [N] of each of `ids` [N] after the model's `hidden` [N, d]."""
    parts = []
    for rows, targets in zip(torch.split(hidden, ROWS), torch.split(ids, ROWS), strict=True):
        logits = F.linear(rows, model.output_weight, model.output_bias).float()  # [ROWS, V]
        parts.append(F.cross_entropy(logits, targets, reduction="none"))
    return -torch.cat(parts)
