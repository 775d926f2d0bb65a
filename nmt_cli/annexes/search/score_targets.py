"""`nmt score-targets`: the log-probabilities of given targets."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli.commands.translate_formats import column
from nmt_cli.commands.translate_options import (
    CheckpointOptions,
    FileOptions,
    check_checkpoints,
    check_output,
)
from nmt_cli.commands.translate_streams import Results, Totals, Work, write_results
from nmt_cli.cores import Sizes
from nmt_cli.data.vocabulary import SPACE
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.errors import counted, main_rank_reports
from nmt_cli.flags import Command
from nmt_cli.interfaces import EOS, SPECIAL_SYMBOLS
from nmt_cli.registry import REQUIRED, option

if TYPE_CHECKING:  # this imports torch, which `nmt score-targets --help` must not
    from nmt_cli.decoding.outputs import TargetScore

_SPACES = re.compile(r"\s")
_DEFAULTS = TranslateOptions()


@dataclass(frozen=True, kw_only=True)
class ScoreTargetsOptions(FileOptions, CheckpointOptions):
    """Compute the log-probability of each line of a file as the translation of the input's line.

    Each line of output has the log-probability, the number of tokens and the target, separated by
    tabs.
    """

    target: Path = option(REQUIRED, "The translations to score, a line for each line of the input.")
    token_scores: bool = option(
        False, "Also write each token and its log-probability, token:-0.25."
    )
    batch_tokens: int | None = option(
        None,
        "Tokens in a batch on either side, with padding. [default: 4096, on a GPU 32768]",
        minimum=1,
    )
    read_ahead: int | None = option(
        None,
        "Lines read and sorted by length at once. [default: 1024, on a single GPU 8192]",
        minimum=1,
    )
    max_source_length: int = option(
        _DEFAULTS.max_source_length,
        "Maximum tokens of a line on either side. Longer lines are truncated.",
        minimum=1,
    )


def score_targets(options: ScoreTargetsOptions) -> None:
    """Score the lines of `options.target`."""
    from nmt_cli.training.state import perplexity

    with main_rank_reports():
        check_checkpoints(options)
        check_output(options.output, options.input, options.target)
    totals = write_results(options, options.target, "scored", options.read_ahead, _load)
    if totals.tokens:
        tokens = counted(totals.tokens, "target token")
        figure = f"{perplexity(-totals.log_probability / totals.tokens):,.4f}"
        options.note(f"perplexity {figure} on {tokens}, ends of sentences included")


def _load(options: ScoreTargetsOptions, _: ExitStack) -> tuple[Work, Sizes]:
    """Load the model. Return the function that scores a window, whose other lines are targets."""
    from nmt_cli import registry
    from nmt_cli.annexes.search.scoring import score_targets as scored
    from nmt_cli.decoding.loading import load_translator

    registry.discover(options.imports)
    limits = TranslateOptions(
        batch_tokens=options.batch_tokens, max_source_length=options.max_source_length
    )
    translator = load_translator(
        options.checkpoints, limits, device=options.device, say=options.note
    )

    def work(
        advance: Callable[[Sequence[str]], None], first: int, sources: list[str], targets: list[str]
    ) -> Results:
        start = time.perf_counter()
        places = [f"{options.target}:{number}" for number in range(first, first + len(targets))]
        scores = scored(translator, sources, targets, advance, places.__getitem__)
        totals = Totals(lines=len(scores), seconds=time.perf_counter() - start)
        warnings = []
        for number, score in enumerate(scores, first):
            totals.tokens += len(score.token_scores)
            totals.log_probability += score.score
            if score.source_truncated:
                warnings.append(cut(options.input or "standard input", number))
            if score.target_truncated:
                warnings.append(cut(options.target, number))
        text = "".join(format_score(score, options.token_scores) for score in scores)
        return [text], totals, warnings

    def cut(name: Path | str, number: int) -> str:
        return (
            f"{name}:{number}: only the first {options.max_source_length} tokens of the line are "
            "scored (--max-source-length)"
        )

    return work, translator.engine.sizes


def format_score(score: TargetScore, token_scores: bool) -> str:
    """Return the line of log-probability, number of tokens, perhaps `token_scores`, and target."""
    columns = [f"{score.score:.4f}", str(len(score.token_scores))]
    if token_scores:
        tokens = list(score.tokens)
        if not score.target_truncated:
            tokens.append(SPECIAL_SYMBOLS[EOS])
        pairs = zip(tokens, score.token_scores, strict=True)
        of_tokens = [f"{_SPACES.sub(SPACE, token)}:{value:.4f}" for token, value in pairs]
        columns.append(" ".join(of_tokens))
    columns.append(column(score.target))
    return "\t".join(columns) + "\n"


command = Command(
    ScoreTargetsOptions,
    score_targets,
    examples=[
        "nmt score-targets run --input test.en --target test.de",
        "nmt score-targets run-1 run-2 --target system.de.gz < test.en",
    ],
)
