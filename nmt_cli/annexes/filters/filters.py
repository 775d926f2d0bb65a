"""Filters of training pairs by patterns, scripts, languages and scores, and their report."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt_cli.annexes.filters.marks import warn_of_marks
from nmt_cli.annexes.filters.settings import SAMPLE, FilterConfig
from nmt_cli.commands import progress
from nmt_cli.commands.prepare_text import Cleaning, Filter, PairFilter, one_spaced
from nmt_cli.errors import DataError, UsageError, missing_package, shown
from nmt_cli.files.opening import open_output
from nmt_cli.files.parallel_text import ParallelLines
from nmt_cli.files.text import read_lines

LOW_SCORE, HELD_OUT, PATTERN = "low score", "held-out source", "pattern"
SCRIPT, LANGUAGE = "script", "language"

Test = Callable[[str], bool]
"""Whether to drop a pair for a line on one of its sides."""


class Filters(PairFilter):
    """The filters that the flags ask for."""

    def __init__(self, config: FilterConfig) -> None:
        self.config = config
        self.settings = {name: value for name, value in asdict(config).items() if name != "dropped"}
        self.inputs = {"scores": [Path(name) for name in config.scores]}

    def check(self, inputs: Iterable[Path]) -> None:
        if (self.config.min_score is None) == bool(self.config.scores):
            raise UsageError("--scores and --min-score need each other")
        if self.config.dropped:
            # Not at the top: `nmt prepare --help` is fast without it.
            from nmt_cli.commands.translate_options import check_output

            for path in inputs:
                check_output(self.config.dropped, path)

    def look(self, block: Any) -> None:
        """Warn of marks of other programs in the first lines of each file."""
        if isinstance(block, ParallelLines) and block.first == 1:
            warn_of_marks(block)

    def tests(self, held_out: Set[str]) -> list[Filter]:
        """Return the filters, fast ones first.

        Raises:
            UsageError: an unknown expression, script or language.
        """
        c = self.config
        filters: list[Filter] = []
        if c.drop_held_out:
            filters.append((HELD_OUT, lambda source, _: one_spaced(source) in held_out))
        if c.drop_matching:
            filters.append((PATTERN, _matching(c.drop_matching)))
        if c.scripts:
            filters.append((SCRIPT, _on_either_side(_script, "--scripts", c.scripts)))
        if c.identify_languages:
            test = _on_either_side(_language, "--identify-languages", c.identify_languages)
            filters.append((LANGUAGE, test))
        return filters

    def by_number(self, pairs: int) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
        if self.config.min_score is not None:
            yield LOW_SCORE, low_scores(self.config.scores, self.config.min_score, pairs)

    def finished(self, cleaning: Cleaning) -> None:
        if self.config.dropped:
            write_sample(self.config.dropped, cleaning)


def _matching(expressions: Sequence[str]) -> Callable[[str, str], bool]:
    tests = [_compiled(text, f"--drop-matching {text}").search for text in expressions]
    return lambda source, target: any(test(source) or test(target) for test in tests)


def _on_either_side(
    make: Callable[[str], Test], flag: str, names: str
) -> Callable[[str, str], bool]:
    """Return a test of pairs: the first name is for the source, the second for the target."""
    if not re.fullmatch("[^,]+,[^,]+", names):
        raise UsageError(f"{flag} {names}: expected a name for each side, as in a,b")
    source_name, target_name = names.split(",")
    first, second = make(source_name), make(target_name)
    return lambda source, target: first(source) or second(target)


def _compiled(text: str, place: str) -> Any:
    import regex

    try:
        return regex.compile(text, regex.V1)
    except regex.error as error:
        raise UsageError(f"{place}: {error}") from error


def _script(names: str) -> Test:
    """Return a test for most letters in other scripts than `names`, such as Latn or Hani+Kana."""
    # Script extensions: the mark of long vowels is both Hira and Kana.
    without = "".join(rf"--\p{{scx={name}}}" for name in names.split("+"))
    letters = _compiled(r"[\p{L}--\p{scx=Zyyy}]", f"--scripts {names}")
    others = _compiled(rf"[\p{{L}}--\p{{scx=Zyyy}}{without}]", f"--scripts {names}")
    return lambda line: 2 * len(others.findall(line)) > len(letters.findall(line))


def _language(name: str) -> Test:
    """Return a test for lines that are identified as another language than `name`."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise missing_package("--identify-languages", error, extra="language-id") from error
    # Without a limit of confidence, up to 7 % of good lines of less than 20 characters count as
    # another language.
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True, min_confidence=0.5)
    if name not in identifier.nb_classes:
        raise UsageError(
            f"--identify-languages: {name!r} is none of {', '.join(identifier.nb_classes)}"
        )
    passing = (name, "und", "zxx")  # "und": not confident, "zxx": numbers and markup
    return lambda line: identifier.classify(line)[0] not in passing


def low_scores(paths: Sequence[str], minimum: float, pairs: int) -> npt.NDArray[np.bool_]:
    """Return whether the score of each pair is below the minimum: [pairs].

    Raises:
        DataError: a line of `paths` is no score, or there is not one for each pair.
    """

    def all_low() -> Iterator[bool]:
        for path in paths:
            for number, line in enumerate(read_lines(Path(path)), 1):
                yield _score(line, path, number) < minimum

    low = np.fromiter(all_low(), dtype=bool)
    if len(low) != pairs:
        raise DataError(
            f"{' '.join(paths)}: {len(low)} scores for {pairs} pairs of --train; each pair has one "
            "line"
        )
    return low


def _score(line: str, path: str, number: int) -> float:
    """Return the number of a line, per token if a second column has the number of tokens."""
    total, *more = line.split("\t", 2)
    with suppress(ValueError, ZeroDivisionError):
        tokens = int(more[0]) if more else 1
        score = float(total) / tokens
        if not math.isnan(score):
            return score
    raise DataError(
        f"{path}:{number}: expected a number, or a line of nmt score-targets, found {shown(line)}"
    )


def write_sample(path: Path, cleaning: Cleaning) -> None:
    """Write place, reason, source and target of pairs that were dropped, by reason."""
    reasons = [str(reason) for reason in cleaning.code_of]
    sample = np.zeros_like(cleaning.codes)  # [pairs]: the code of a reason if the pair is written
    for code in range(1, len(reasons)):
        dropped = np.flatnonzero(cleaning.codes == code)
        size = min(SAMPLE, len(dropped))
        evenly_spaced = np.linspace(0, len(dropped) - 1, size).astype(int)
        sample[dropped[evenly_spaced]] = code
    rows: list[tuple[str, ...]] = []
    start = 0
    with progress.stage("reading dropped pairs", cleaning.size, "bytes") as consumed:
        for block in cleaning.blocks(consumed):
            codes = sample[start : start + len(block)]
            start += len(block)
            if not codes.any():
                continue
            for code, pair in zip(codes, cleaning.task.examples(block), strict=False):
                if code:
                    sides = [re.sub(r"[\n\r\t]", " ", side) for side in (pair.source, pair.target)]
                    rows.append((pair.place, reasons[code], *sides))
    rows.sort(key=lambda row: row[1])
    table = "".join("\t".join(row) + "\n" for row in rows)
    with open_output(path) as write:
        write(table.encode())
