"""`nmt rerank`: the best output of each line of an n-best list."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from nmt_cli import registry
from nmt_cli.commands.translate_options import FileOptions, check_output
from nmt_cli.errors import UsageError, counted
from nmt_cli.files.nbest import Candidate, read_nbest
from nmt_cli.files.opening import open_output
from nmt_cli.files.parallel_text import not_parallel
from nmt_cli.files.text import read_lines
from nmt_cli.flags import Command, import_option
from nmt_cli.registry import option

_WINDOW = 500  # lines of input that are scored at once
_CONSTANT = "x"  # the source of every line of a language model: training leaves out empty lines
_CHECKPOINT = "CHECKPOINT[*WEIGHT]"

# For each line of input, itself with each of its outputs.
Pairs = Sequence[Sequence[tuple[str, str]]]
Scorer = Callable[[Pairs], list[Any]]  # returns an array with the scores of each line's outputs


@dataclass(frozen=True, kw_only=True)
class RerankOptions(FileOptions):
    """Write the best output of each line of an n-best list, or of samples.

    The input is written by `nmt translate --nbest N --format tsv`. The best output has the highest
    weighted sum.
    """

    mbr: str | None = option(
        None,
        "Similarity to the other outputs, 0 to 1 (minimum Bayes risk): chrf.",
        metavar="chrf[*WEIGHT]",
    )
    model: tuple[str, ...] = option((), "Score of the output by a model.", metavar=_CHECKPOINT)
    reverse: tuple[str, ...] = option(
        (),
        "Score of the source, given the output, by a model of the other direction.",
        metavar=_CHECKPOINT,
    )
    language_model: tuple[str, ...] = option(
        (),
        "Score of the output by a model that was trained with 'x' as every source.",
        metavar=_CHECKPOINT,
    )
    score_weight: float = option(0.0, "Weight of the scores in the input.")
    source: Path | None = option(None, "The source sentences, for --model and --reverse.")
    device: str = option("auto", "Device of models: auto, cpu, cuda or cuda:N.")
    imports: tuple[str, ...] = import_option()


def rerank(options: RerankOptions) -> None:
    """Write the best output of each line.

    Raises:
        UsageError: nothing is given to rerank by, or a weight is not a number.
        DataError: the input has another form, or is not of the lines of the source.
    """
    if bool(options.model or options.reverse) != bool(options.source):
        raise UsageError("--model and --reverse need --source FILE, which nothing else uses")
    check_output(options.output, options.input, options.source)
    scorers = list(_scorers(options))
    if not scorers and not options.score_weight:
        raise UsageError(
            "give --mbr chrf, --model, --reverse, --language-model or --score-weight to rerank by"
        )
    sources = None
    if options.source:
        sources = list(read_lines(options.source))
    lines = outputs = 0
    start = time.perf_counter()
    candidates = read_nbest(options.input)
    with open_output(options.output) as write:
        while True:
            window = list(islice(candidates, _WINDOW))
            if not window:
                break
            of_window = [""] * len(window)
            if sources is not None:
                of_window = sources[lines : lines + len(window)]
            lines += len(window)
            outputs += sum(map(len, window))
            # If there are too few sources, all lines are read, to be counted in the message.
            if len(of_window) == len(window):
                best = _best(window, of_window, scorers, options.score_weight)
                write("".join(f"{text}\n" for text in best).encode())
        if sources is not None and lines != len(sources):
            name = str(options.input or "the input")
            raise not_parallel(str(options.source), len(sources), name, lines)
    seconds = time.perf_counter() - start
    options.note(
        f"reranked {counted(outputs, 'output')} of {counted(lines, 'line')} in {seconds:.1f} s"
    )


def _best(
    window: Sequence[Sequence[Candidate]],
    sources: Sequence[str],
    scorers: Sequence[tuple[float, Scorer]],
    score_weight: float,
) -> list[str]:
    """Return the output of each line with the highest weighted sum of scores."""
    pairs = []
    totals = []
    for source, candidates in zip(sources, window, strict=True):
        pairs.append([(source, text) for _, text in candidates])
        totals.append(score_weight * np.array([score for score, _ in candidates]))
    for weight, scorer in scorers:
        for total, scores in zip(totals, scorer(pairs), strict=True):
            total += weight * scores
    best = []
    for candidates, total in zip(window, totals, strict=True):
        _, text = candidates[int(total.argmax())]
        best.append(text)
    return best


def _scorers(options: RerankOptions) -> Iterator[tuple[float, Scorer]]:
    """Yield the weight and the function of each score."""
    if options.mbr:
        from nmt_cli.annexes.search.risk import expected_chrf

        name, weight = _weighted(options.mbr)
        if name != "chrf":
            raise UsageError(f"--mbr must be chrf, not {name!r}")

        def risk(pairs: Pairs) -> list[Any]:
            return [expected_chrf([output for _, output in of_line]) / 100 for of_line in pairs]

        yield weight, risk
    registry.discover(options.imports)
    for checkpoints, pair in (
        (options.model, lambda source, output: (source, output)),
        (options.reverse, lambda source, output: (output, source)),
        (options.language_model, lambda source, output: (_CONSTANT, output)),
    ):
        for name, weight in map(_weighted, checkpoints):
            yield weight, _model(Path(name), pair, options)


def _weighted(text: str) -> tuple[str, float]:
    """Return the name and the weight of `NAME*WEIGHT` or `NAME`."""
    name, star, written = text.rpartition("*")
    if not star:
        return text, 1.0
    try:
        weight = float(written)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight):
        raise UsageError(f"{text}: the weight after * must be a finite number, not {written!r}")
    return name, weight


def _model(
    path: Path, pair: Callable[[str, str], tuple[str, str]], options: RerankOptions
) -> Scorer:
    """Return a function of the log-probabilities by a model, divided by its length penalty."""
    import torch

    from nmt_cli.annexes.search.scoring import score_targets
    from nmt_cli.decoding.length_penalty import length_penalty
    from nmt_cli.decoding.loading import load_translator

    translator = load_translator([path], device=options.device, say=options.note)

    def scores(pairs: Pairs) -> list[Any]:
        sides_of_lines = []
        for of_line in pairs:
            sides_of_lines.append([pair(source, output) for source, output in of_line])
        unique = list(dict.fromkeys(chain.from_iterable(sides_of_lines)))
        sources = [source for source, _ in unique]
        targets = [target for _, target in unique]
        scored = score_targets(translator, sources, targets)
        lengths = torch.tensor([len(target.token_scores) for target in scored])
        sums = torch.tensor([target.score for target in scored])
        normalised = sums / length_penalty(lengths, translator.search.alpha)
        score_of = dict(zip(unique, normalised.tolist(), strict=True))
        return [np.array([score_of[sides] for sides in of_line]) for of_line in sides_of_lines]

    return scores


command = Command(
    RerankOptions,
    rerank,
    examples=[
        "nmt rerank --mbr chrf < test.samples.tsv > test.de",
        "nmt rerank --score-weight 1 --reverse de-en*0.3 --source en < nbest.tsv",
    ],
)
