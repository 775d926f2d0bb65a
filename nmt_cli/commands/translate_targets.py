"""`nmt translate --score-target`: the log-probabilities of given targets."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nmt_cli.commands.translate_formats import column
from nmt_cli.commands.translate_streams import parallel_windows
from nmt_cli.data.vocabulary import SPACE
from nmt_cli.decoding.scoring import TargetScore
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import counted
from nmt_cli.files.opening import Input
from nmt_cli.files.text import ALL_LINES
from nmt_cli.interfaces import EOS, SPECIAL_SYMBOLS
from nmt_cli.training.validation import perplexity

_SPACES = re.compile(r"\s")


@dataclass
class Totals:
    """Figures of the summary; the time excludes waiting for input."""

    lines: int = 0
    tokens: int = 0
    log_probability: float = 0.0
    seconds: float = 0.0

    def add(self, score: TargetScore) -> None:
        """Count a line."""
        self.lines += 1
        self.tokens += len(score.token_scores)
        self.log_probability += score.score

    def summary(self) -> Iterator[str]:
        """Yield the lines to show at the end."""
        seconds = max(self.seconds, 1e-6)
        yield (
            f"scored {counted(self.lines, 'line')} in {self.seconds:.1f} s: "
            f"{self.lines / seconds:,.1f} lines/s, {self.tokens / seconds:,.0f} target tokens/s"
        )
        if self.tokens:
            yield (
                f"perplexity {perplexity(-self.log_probability / self.tokens):,.4f} on "
                f"{counted(self.tokens, 'target token')}, ends of sentences included"
            )


def score_stream(
    translator: Translator,
    source: Input,
    target: Input,
    write: Callable[[bytes], None],
    advance: Callable[[Sequence[str]], None],
    warn: Callable[[str], None],
    part: range = ALL_LINES,
    token_scores: bool = False,
) -> Totals:
    """Score the lines of `target` that are in `part`, and write a line for each.

    Raises:
        DataError: one of the two has more lines.
    """
    totals = Totals()
    for sources, targets in parallel_windows(source, target, translator.options.read_ahead, warn, part):
        start = time.perf_counter()
        first = part.start + totals.lines
        places = [f"{target.name}:{number}" for number in range(first, first + len(targets))]
        scores = translator.score_targets(sources, targets, advance, places.__getitem__)
        totals.seconds += time.perf_counter() - start
        write("".join(format_score(score, token_scores) for score in scores).encode())
        for number, score in enumerate(scores, first):
            totals.add(score)
            for cut, name in ((score.source_truncated, source.name), (score.target_truncated, target.name)):
                if cut:
                    warn(
                        f"{name}:{number}: longer than {translator.options.max_source_length} tokens; the rest of the "
                        "line is left out of the score (--max-source-length)"
                    )
    return totals


def format_score(score: TargetScore, token_scores: bool) -> str:
    """Return the output line: log-probability, number of tokens, each token's log-probability if asked for, target."""
    columns = [f"{score.score:.4f}", str(len(score.token_scores))]
    if token_scores:
        tokens = [*score.tokens, SPECIAL_SYMBOLS[EOS]]  # without the last if the target was cut
        pairs = zip(tokens, score.token_scores, strict=not score.target_truncated)
        columns.append(" ".join(f"{_SPACES.sub(SPACE, token)}:{value:.4f}" for token, value in pairs))
    return "\t".join([*columns, column(score.target)]) + "\n"
