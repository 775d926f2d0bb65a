"""`nmt score-targets`: the log-probabilities of given targets."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli.commands.translate_formats import column
from nmt_cli.commands.translate_options import CheckpointOptions, FileOptions, check_checkpoints, check_output
from nmt_cli.commands.translate_streams import Totals, check_line_counts, parallel_windows, progress
from nmt_cli.data.vocabulary import SPACE
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.errors import counted
from nmt_cli.files.opening import open_input, open_output
from nmt_cli.flags import Command
from nmt_cli.interfaces import EOS, SPECIAL_SYMBOLS
from nmt_cli.registry import REQUIRED, option
from nmt_cli.streams import say, warnings_by_kind

if TYPE_CHECKING:  # this imports torch, which `nmt score-targets --help` must not
    from nmt_cli.decoding.scoring import TargetScore

_SPACES = re.compile(r"\s")
_DEFAULTS = TranslateOptions()


@dataclass(frozen=True, kw_only=True)
class ScoreTargetsOptions(FileOptions, CheckpointOptions):
    """Compute the log-probability of each line of a file, as the translation of the same line of the input.

    Each line of output has the log-probability, the number of tokens and the target, separated by tabs.
    """

    target: Path = option(REQUIRED, "The translations to score, a line for each line of the input.")
    token_scores: bool = option(False, "Also write each token and its log-probability, token:-0.25.")
    batch_tokens: int = option(_DEFAULTS.batch_tokens, "Tokens in a batch on either side, with padding.", minimum=1)
    read_ahead: int = option(_DEFAULTS.read_ahead, "Lines read and sorted by length at once.", minimum=1)
    max_source_length: int = option(
        _DEFAULTS.max_source_length, "Maximum tokens of a line on either side. Longer lines are truncated.", minimum=1
    )


def score_targets(options: ScoreTargetsOptions) -> None:
    """Score the lines of `options.target`."""
    from nmt_cli import registry
    from nmt_cli.decoding.loading import load_translator
    from nmt_cli.training.validation import perplexity

    registry.discover(options.imports)
    check_checkpoints(options)
    check_output(options.output, options.input, options.target)
    check_line_counts(options.input, options.target)
    limits = TranslateOptions(
        batch_tokens=options.batch_tokens,
        read_ahead=options.read_ahead,
        max_source_length=options.max_source_length,
    )
    totals, log_probability = Totals(), 0.0
    with ExitStack() as stack:
        warn = stack.enter_context(warnings_by_kind(options.quiet))
        source = stack.enter_context(open_input(options.input))
        target = stack.enter_context(open_input(options.target))
        note = (lambda message: None) if options.quiet else say
        translator = load_translator(options.checkpoints, limits, device=options.device, say=note)
        write = stack.enter_context(open_output(options.output))
        advance = stack.enter_context(progress(source, "scored", options.shows_progress))
        for sources, targets in parallel_windows(source, target, options.read_ahead, warn):
            start, first = time.perf_counter(), 1 + totals.lines
            places = [f"{target.name}:{number}" for number in range(first, first + len(targets))]
            scores = translator.score_targets(sources, targets, advance, places.__getitem__)
            totals.seconds += time.perf_counter() - start
            write("".join(format_score(score, options.token_scores) for score in scores).encode())
            for number, score in enumerate(scores, first):
                totals.lines += 1
                totals.tokens += len(score.token_scores)
                log_probability += score.score
                for cut, name in ((score.source_truncated, source.name), (score.target_truncated, target.name)):
                    if cut:
                        warn(
                            f"{name}:{number}: only the first {options.max_source_length} tokens of the line are "
                            "scored (--max-source-length)"
                        )
    note(totals.summary("scored"))
    if totals.tokens:
        tokens = counted(totals.tokens, "target token")
        note(f"perplexity {perplexity(-log_probability / totals.tokens):,.4f} on {tokens}, ends of sentences included")


def format_score(score: TargetScore, token_scores: bool) -> str:
    """Return the output line: log-probability, number of tokens, each token's log-probability if asked for, target."""
    columns = [f"{score.score:.4f}", str(len(score.token_scores))]
    if token_scores:
        tokens = [*score.tokens, SPECIAL_SYMBOLS[EOS]]  # without the last if the target was cut
        pairs = zip(tokens, score.token_scores, strict=not score.target_truncated)
        columns.append(" ".join(f"{_SPACES.sub(SPACE, token)}:{value:.4f}" for token, value in pairs))
    return "\t".join([*columns, column(score.target)]) + "\n"


command = Command(
    ScoreTargetsOptions,
    score_targets,
    examples=[
        "nmt score-targets run --input test.en --target test.de",
        "nmt score-targets run-1 run-2 --target system.de.gz < test.en",
    ],
)
