"""`nmt rerank`: the best output of each line of an n-best list."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from nmt_cli import registry
from nmt_cli.commands.translate_options import FileOptions, check_output
from nmt_cli.errors import UsageError, counted
from nmt_cli.files.nbest import read_nbest
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

    The input is that of `nmt translate --nbest N --format tsv`. The best output has the highest
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
    sources = list(read_lines(options.source)) if options.source else None
    lines, outputs, start = 0, 0, time.perf_counter()
    found = read_nbest(options.input)
    with open_output(options.output) as write:
        while window := list(islice(found, _WINDOW)):
            own = [""] * len(window) if sources is None else sources[lines : lines + len(window)]
            lines, outputs = lines + len(window), outputs + sum(map(len, window))
            if len(own) == len(window):
                pairs = [
                    [(source, text) for _, text in group]
                    for source, group in zip(own, window, strict=True)
                ]
                totals = [
                    options.score_weight * np.array([score for score, _ in group])
                    for group in window
                ]
                for weight, scorer in scorers:
                    totals = [
                        total + weight * scores
                        for total, scores in zip(totals, scorer(pairs), strict=True)
                    ]
                best = (
                    group[int(total.argmax())][1]
                    for group, total in zip(pairs, totals, strict=True)
                )
                write("".join(f"{text}\n" for text in best).encode())
        if sources is not None and lines != len(sources):
            raise not_parallel(
                str(options.source), len(sources), str(options.input or "the input"), lines
            )
    seconds = time.perf_counter() - start
    options.note(
        f"reranked {counted(outputs, 'output')} of {counted(lines, 'line')} in {seconds:.1f} s"
    )


def _scorers(options: RerankOptions) -> Iterator[tuple[float, Scorer]]:
    """Yield the weight and the function of each score."""
    if options.mbr:
        from nmt_cli.annexes.search.risk import expected_chrf

        name, weight = _weighted(options.mbr)
        if name != "chrf":
            raise UsageError(f"--mbr must be chrf, not {name!r}")
        yield (
            weight,
            lambda pairs: [expected_chrf([output for _, output in group]) / 100 for group in pairs],
        )
    registry.discover(options.imports)
    for checkpoints, pair in (
        (options.model, lambda source, output: (source, output)),
        (options.reverse, lambda source, output: (output, source)),
        (options.language_model, lambda source, output: (_CONSTANT, output)),
    ):
        for name, weight in map(_weighted, checkpoints):
            yield weight, _model(Path(name), pair, options)


def _weighted(text: str) -> tuple[str, float]:
    name, star, weight = text.rpartition("*")
    try:
        if star and not math.isfinite(float(weight)):
            raise ValueError
        return (name, float(weight)) if star else (text, 1.0)
    except ValueError:
        raise UsageError(
            f"{text}: the weight after * must be a finite number, not {weight!r}"
        ) from None


def _model(
    path: Path, pair: Callable[[str, str], tuple[str, str]], options: RerankOptions
) -> Scorer:
    """Return a function of the log-probabilities by a model, divided by the length penalty of its
    search.
    """
    import torch

    from nmt_cli.annexes.search.scoring import score_targets
    from nmt_cli.decoding.beam_search import length_penalty
    from nmt_cli.decoding.loading import load_translator

    translator = load_translator([path], device=options.device, say=options.note)

    def scores(pairs: Pairs) -> list[Any]:
        wanted = [[pair(*each) for each in group] for group in pairs]
        unique = list(dict.fromkeys(each for group in wanted for each in group))
        found = score_targets(
            translator, [source for source, _ in unique], [target for _, target in unique]
        )
        lengths = torch.tensor([len(each.token_scores) for each in found])
        sums = torch.tensor([each.score for each in found])
        known = dict(
            zip(
                unique,
                (sums / length_penalty(lengths, translator.search.alpha)).tolist(),
                strict=True,
            )
        )
        return [np.array([known[each] for each in group]) for group in wanted]

    return scores


command = Command(
    RerankOptions,
    rerank,
    examples=[
        "nmt rerank --mbr chrf < test.samples.tsv > test.de",
        "nmt rerank --score-weight 1 --reverse de-en*0.3 --source en < nbest.tsv",
    ],
)
