"""Whether systems differ by more than chance: sacreBLEU's paired tests, for every metric of
`nmt_cli.metrics.bleu`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nmt_cli.errors import UsageError, nearest
from nmt_cli.metrics.bleu import DEFAULT, Lines, Named, measured, signature_of

TESTS = {"paired-bootstrap": "bs", "approximate-randomization": "ar"}
"""The tests by name, and sacreBLEU's abbreviations."""


@dataclass(frozen=True)
class Comparison:
    """The score of one system by one metric, compared with the baseline, which is the first system."""

    metric: str  # the short name
    name: str  # the full name
    system: str
    baseline: str
    score: float  # on all sentences
    # Of a difference this large between equally good systems; None for the baseline.
    p_value: float | None
    mean: float | None  # of the resamples of the bootstrap
    interval: float | None  # half the width of the 95% confidence interval around `mean`
    signature: str  # with the test, its number of samples and the seed


def paired_test(
    systems: Sequence[Named],
    references: Sequence[Named],
    test: str,
    metrics: Sequence[str] = DEFAULT,
    target_language: str = "de",
    samples: int = 0,
    sources: Lines = (),
) -> list[Comparison]:
    """Compare every system with the first one, metric by metric.

    Args:
        systems: the baseline first.
        metrics, target_language, sources: as in `nmt_cli.metrics.bleu.score`.
        test: a name of `TESTS`.
        samples: resamples or trials; 0 means sacreBLEU's 1,000 resamples or 10,000 trials.

    Raises:
        UsageError: an unknown test or metric, or fewer than two systems.
        DataError: lists of different length.
    """
    from sacrebleu.significance import PairedTest

    if test not in TESTS:
        raise UsageError(f"there is no test called {test!r}. {nearest(test, TESTS)}")
    if len(systems) < 2:
        raise UsageError(
            "a paired test compares systems: give two or more files of hypotheses, the baseline "
            "first"
        )
    comparisons = []
    for measure, metric, prepared_references, prepared in measured(
        systems, references, metrics, target_language, sources
    ):
        names = [name for name, _ in systems]
        named: list[Named] = list(zip(names, prepared, strict=True))
        signatures, columns = PairedTest(
            named, {"": metric}, prepared_references, TESTS[test], samples
        )()
        ((key, found),) = signatures.items()
        signature = signature_of(measure, found, target_language)
        results: list[Any] = columns[key]
        for system, result in zip(names, results, strict=True):
            # Some are numpy's, which JSON does not have.
            values = (result.p_value, result.mean, result.ci)
            p_value, mean, interval = [None if value is None else float(value) for value in values]
            if p_value is not None and result.score == results[0].score:
                # SacreBLEU counts only larger differences, and gives equal scores its smallest p.
                p_value = 1.0
            score = float(result.score)
            name = measure.name.format(language=target_language)
            comparisons.append(
                Comparison(
                    measure.metric,
                    name,
                    system,
                    names[0],
                    score,
                    p_value,
                    mean,
                    interval,
                    signature,
                )
            )
    return comparisons
