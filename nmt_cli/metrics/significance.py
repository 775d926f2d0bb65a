"""Whether systems differ by more than chance: sacreBLEU's paired tests, for every measure of `nmt_cli.metrics.bleu`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nmt_cli.errors import UsageError, nearest
from nmt_cli.metrics.bleu import MAIN, measured, signature_of

TESTS = {"paired-bootstrap": "bs", "approximate-randomization": "ar"}
"""The tests by name, and what sacreBLEU calls them."""


@dataclass(frozen=True)
class Comparison:
    """One system's score by one measure, compared with the baseline, which is the first system.

    Args:
        id: the measure's id.
        metric: its full name.
        system: the system's name.
        baseline: the baseline's name.
        score: the system's score on all sentences.
        p_value: how probable a difference this large is if the two were equally good; 1 for the same score, None for
            the baseline itself.
        mean: of the scores of the resamples (bootstrap alone).
        interval: half the width of the 95% confidence interval around `mean` (bootstrap alone).
        signature: with the test, its number of samples and the seed.
    """

    id: str
    metric: str
    system: str
    baseline: str
    score: float
    p_value: float | None
    mean: float | None
    interval: float | None
    signature: str


def paired_test(
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[str] | Sequence[Sequence[str]],
    test: str,
    metrics: Sequence[str] = MAIN,
    target_language: str = "de",
    samples: int = 0,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Comparison]:
    """Every system against the first one, measure by measure.

    Args:
        systems: names and their sentences, the baseline first.
        references: as in `nmt_cli.metrics.bleu.score`.
        test: "paired-bootstrap" or "approximate-randomization".
        metrics: as in `nmt_cli.metrics.bleu.score`.
        target_language: as there.
        samples: resamples or trials; 0 means sacreBLEU's 1,000 resamples or 10,000 trials.
        progress: told the id of each measure before it is tested.

    Raises:
        UsageError: an unknown test or metric, or fewer than two systems.
        DataError: lists of different length.
    """
    from sacrebleu.significance import PairedTest

    if test not in TESTS:
        raise UsageError(f"there is no test called {test!r}. {nearest(test, TESTS)}")
    if len(systems) < 2:
        raise UsageError("a paired test compares systems: give two or more files of hypotheses, the baseline first")
    comparisons = []
    for measure, metric, prepared in measured(systems, references, metrics, target_language, progress):
        named: list[tuple[str, Sequence[str]]] = list(zip((name for name, _ in systems), prepared, strict=True))
        paired = PairedTest(named, {measure.id: metric}, None, test_type=TESTS[test], n_samples=samples)
        _, columns = paired()
        results: list[Any] = next(column for name, column in columns.items() if name != "System")
        extra = f"|{TESTS[test]}:{paired.n_samples}|seed:{str(paired._seed).lower()}"
        for (name, _), result in zip(systems, results, strict=True):
            comparisons.append(
                Comparison(
                    measure.id,
                    measure.name.format(language=target_language),
                    name,
                    systems[0][0],
                    float(result.score),
                    _p_value(result, results[0]),
                    _number(result.mean),
                    _number(result.ci),
                    signature_of(measure, metric, target_language) + extra,
                )
            )
    return comparisons


def _p_value(result: Any, baseline: Any) -> float | None:
    """sacreBLEU's p-value, but 1 for equal scores, where sacreBLEU counts larger differences alone and finds none."""
    if result.p_value is not None and result.score == baseline.score:
        return 1.0
    return _number(result.p_value)


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
