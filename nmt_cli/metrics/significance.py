"""sacreBLEU's paired tests for the metrics of `bleu.py`: do systems differ by more than chance?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nmt_cli.errors import UsageError, nearest
from nmt_cli.metrics.bleu import DEFAULT, Lines, Named, prepare, signature_of

TESTS = {"paired-bootstrap": "bs", "approximate-randomization": "ar"}
"""The tests by name, and sacreBLEU's abbreviations."""


@dataclass(frozen=True)
class Comparison:
    """The score of one system by one metric, compared with the baseline, the first system."""

    metric: str  # the short name
    name: str  # the full name
    system: str
    baseline: str
    score: float  # on all sentences
    # Of a difference this large between equally good systems. None for the baseline.
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
        samples: resamples or trials. 0 means sacreBLEU's 1,000 resamples or 10,000 trials.

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
    names = [name for name, _ in systems]
    comparisons = []
    for prepared in prepare(systems, references, metrics, target_language, sources):
        named: list[Named] = list(zip(names, prepared.systems, strict=True))
        paired = PairedTest(named, {"": prepared.metric}, prepared.references, TESTS[test], samples)
        signatures, columns = paired()
        ((key, test_signature),) = signatures.items()
        signature = signature_of(prepared.measure, test_signature, target_language)
        results: list[Any] = columns[key]
        for system, result in zip(names, results, strict=True):
            p_value = _number(result.p_value)
            if p_value is not None and result.score == results[0].score:
                # SacreBLEU counts only larger differences, and gives equal scores its smallest p.
                p_value = 1.0
            comparisons.append(
                Comparison(
                    prepared.measure.metric,
                    name=prepared.measure.name.format(language=target_language),
                    system=system,
                    baseline=names[0],
                    score=float(result.score),
                    p_value=p_value,
                    mean=_number(result.mean),
                    interval=_number(result.ci),
                    signature=signature,
                )
            )
    return comparisons


def _number(value: Any) -> float | None:
    """Return a number that JSON has: some of sacreBLEU's are NumPy's."""
    return None if value is None else float(value)
