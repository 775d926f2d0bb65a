"""Filters of training pairs, beside the task's own reasons to drop one, and a sample of the pairs dropped."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt_cli.commands.translate_formats import column
from nmt_cli.data.cleaning import COMPARED
from nmt_cli.errors import DataError, UsageError, missing_package, shown
from nmt_cli.files.opening import open_output
from nmt_cli.files.text import read_lines
from nmt_cli.registry import option
from nmt_cli.task import Task

LOW_SCORE, HELD_OUT, PATTERN, SCRIPT, LANGUAGE = "low score", "held-out source", "pattern", "script", "language"
SAMPLE = 100  # pairs written for each reason

Filter = tuple[str, Callable[[str, str], bool]]  # the reason, and whether it drops a source with a target


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    """Filters of training pairs."""

    keep_duplicates: bool = option(False, "Keep repeated pairs.")
    unique: str = option("pair", "What no two pairs have in common. The first one stays.", choices=tuple(COMPARED))
    drop_held_out: bool = option(False, "Drop pairs with a source of the validation or test text.")
    drop_matching: tuple[str, ...] = option((), "Drop pairs that match on a side. Repeat for more.", metavar="REGEX")
    scripts: str | None = option(None, "Drop pairs in other scripts: Latn,Hani+Hira+Kana.", metavar="SOURCE,TARGET")
    identify_languages: str | None = option(None, "Drop pairs in other languages: en,de.", metavar="SOURCE,TARGET")
    min_score: float | None = option(None, "Drop pairs with lower --scores, per token from nmt score-targets.")
    scores: tuple[str, ...] = option((), "A score a line, for each pair of --train. Repeat for more.", metavar="FILE")
    hold_out: int | None = option(
        None,
        "Take N of the pairs that are left for validation, and N for test. Pairs that share a side with them are "
        "dropped.",
        minimum=1,
        metavar="N",
    )
    dropped: Path | None = option(None, f"Write dropped pairs to a table, evenly spaced {SAMPLE} for each reason.")

    def check(self, inputs: Iterable[Path]) -> None:
        """Raise UsageError for options that do not fit one another, or a file to write that is one of the inputs."""
        if self.keep_duplicates and self.unique != "pair":
            raise UsageError(f"--keep-duplicates contradicts --unique {self.unique}")
        if (self.min_score is None) == bool(self.scores):
            raise UsageError("--scores and --min-score need each other")
        if self.dropped:
            from nmt_cli.commands.translate_options import check_output  # not at the top: `nmt prepare --help` is fast

            for path in inputs:
                check_output(self.dropped, path)


def make_filters(options: FilterOptions, watched: Set[str]) -> list[Filter]:
    """Return the filters, fast ones first; raise UsageError for an unknown expression, script or language.

    `watched` are the sources of validation and test text.
    """
    found: list[Filter] = [(HELD_OUT, lambda source, _: one_spaced(source) in watched)] if options.drop_held_out else []
    if tests := [_compiled(text, f"--drop-matching {text}").search for text in options.drop_matching]:
        found.append((PATTERN, lambda source, target: any(test(source) or test(target) for test in tests)))
    for reason, name, make in ((SCRIPT, "scripts", _script), (LANGUAGE, "identify_languages", _language)):
        if text := getattr(options, name):
            if not re.fullmatch("[^,]+,[^,]+", text):
                raise UsageError(f"--{name.replace('_', '-')} {text}: expected a name for each side, as in a,b")
            found.append((reason, _either(*map(make, text.split(",")))))
    return found


def one_spaced(line: str) -> str:
    """Return a line as it is compared with validation and test text: the white space in it is single spaces."""
    return " ".join(line.split())


def _either(first: Callable[[str], bool], second: Callable[[str], bool]) -> Callable[[str, str], bool]:
    return lambda source, target: first(source) or second(target)


def _compiled(text: str, place: str) -> Any:
    import regex

    try:
        return regex.compile(text, regex.V1)
    except regex.error as error:
        raise UsageError(f"{place}: {error}") from error


def _script(names: str) -> Callable[[str], bool]:
    """Return whether most letters of a line are in other scripts than `names`, such as Latn or Hani+Kana."""
    # Script extensions: the mark of long vowels is both Hira and Kana.
    own = "".join(rf"--\p{{scx={name}}}" for name in names.split("+"))
    letters, others = (_compiled(rf"[\p{{L}}--\p{{scx=Zyyy}}{less}]", f"--scripts {names}") for less in ("", own))
    return lambda line: 2 * len(others.findall(line)) > len(letters.findall(line))


def _language(name: str) -> Callable[[str], bool]:
    """Return whether a line is identified as another language than `name`."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise missing_package("--identify-languages", error, extra="language-id") from error
    # Without a limit of confidence, up to 7 % of good lines of less than 20 characters count as another language.
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True, min_confidence=0.5)
    if name not in identifier.nb_classes:
        raise UsageError(f"--identify-languages: {name!r} is none of {', '.join(identifier.nb_classes)}")
    return lambda line: identifier.classify(line)[0] not in (name, "und", "zxx")  # not confident; numbers and markup


def low_scores(paths: Sequence[str], minimum: float, pairs: int) -> npt.NDArray[np.bool_]:
    """Return whether the score of each pair is below the minimum; raise DataError unless each has a line of `paths`."""
    places = ((line, path, number) for path in paths for number, line in enumerate(read_lines(Path(path)), 1))
    low = np.fromiter((_score(*place) < minimum for place in places), dtype=bool)
    if len(low) != pairs:
        raise DataError(f"{' '.join(paths)}: {len(low)} scores for {pairs} pairs of --train; each pair has one line")
    return low


def _score(line: str, path: str, number: int) -> float:
    first, *more = line.split("\t", 2)
    with suppress(ValueError, ZeroDivisionError):
        score = float(first) / int(more[0] if more else 1)
        if not math.isnan(score):
            return score
    raise DataError(f"{path}:{number}: expected a number, or a line of nmt score-targets, found {shown(line)}")


def write_sample(
    path: Path, task: Task, blocks: Iterable[Any], codes: npt.NDArray[np.uint8], reasons: Sequence[str | None]
) -> None:
    """Write place, reason, source and target of dropped pairs, by reason; `codes` number the reasons of all pairs."""
    chosen = np.zeros_like(codes)
    for code in range(1, len(reasons)):
        places = np.flatnonzero(codes == code)
        chosen[places[np.linspace(0, len(places) - 1, min(SAMPLE, len(places))).astype(int)]] = code
    rows: list[list[str]] = []
    for block in blocks:
        here, chosen = chosen[: len(block)], chosen[len(block) :]
        if here.any():
            pairs = ((reasons[code], pair) for code, pair in zip(here, task.examples(block), strict=False) if code)
            rows += [[pair.place, str(reason), column(pair.source), column(pair.target)] for reason, pair in pairs]
    with open_output(path) as write:
        write("".join("\t".join(row) + "\n" for row in sorted(rows, key=lambda row: row[1])).encode())
