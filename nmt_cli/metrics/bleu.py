"""Scores of translations: every BLEU of the literature under a name of its own, chrF, TER, and
metrics of others.

sacreBLEU does the counting. The BLEU of multi-bleu.perl is sacreBLEU's without tokenization and
without smoothing, on lines prepared as users of that script prepare them
(`nmt_cli.metrics.preparation`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nmt_cli import __version__, registry
from nmt_cli.errors import DataError, UsageError, check_iterable, counted, nearest
from nmt_cli.metrics.functions import FunctionMetric
from nmt_cli.metrics.preparation import STEPS, check_language

DEFAULT = ("bleu", "chrf")

_DIGITS = 10  # decimals of a score: 100 for identical text, not 100.00000000000004

Lines = Sequence[str]
Named = tuple[str, Lines]
"""A name for messages, such as a file, and sentences."""


@dataclass(frozen=True)
class Measure:
    """A metric, and how lines are prepared for it."""

    metric: str  # the short name
    name: str  # the full name; "{language}" stands for the target language
    kind: str = "BLEU"  # or CHRF or TER, or MODULE:FUNCTION of a metric that is not sacreBLEU's
    # Arguments of sacreBLEU's class, or of the function.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # The steps that prepare a hypothesis line, names of `preparation.STEPS`.
    hypothesis: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()  # the same for a reference line
    # Entries added to sacreBLEU's signature.
    signature: Mapping[str, str] = field(default_factory=dict)
    # Whether it reads all outputs of a line, joined by line feeds, and not the first alone.
    nbest: bool = False


@dataclass(frozen=True)
class Score:
    """The score of one system by one metric."""

    metric: str  # the short name, such as "bleu"
    name: str  # the full name
    score: float  # 0 to 100 for BLEU and chrF; an error rate, such as TER, may exceed 100
    signature: str  # everything that the score depends on, in sacreBLEU's notation
    system: str = ""  # a file
    # Of BLEU: precisions, brevity penalty, lengths in tokens.
    details: Mapping[str, Any] = field(default_factory=dict)
    # By label, the score of these lines.
    groups: Mapping[str | int, float] = field(default_factory=dict)


def read_measures(module: str) -> Iterator[Measure]:
    """Yield the measures in measures.toml, beside the file `module`, cased and lower-cased."""
    content = Path(module).with_name("measures.toml").read_text(encoding="utf-8")
    for metric, fields in tomllib.loads(content).items():
        lower_cased = fields.pop("lower_cased", None)
        hypothesis = tuple(fields.pop("hypothesis", ()))
        reference = tuple(fields.pop("reference", ()))
        cased = Measure(metric, hypothesis=hypothesis, reference=reference, **fields)
        yield cased
        if lower_cased == "sacrebleu":
            settings = {**cased.settings, "lowercase": True}
            yield replace(
                cased, metric=f"{metric}-lc", name=f"{cased.name}; lower-cased", settings=settings
            )
        elif lower_cased == "perl":
            yield replace(
                cased,
                metric=f"{metric}-lc",
                name=f"{cased.name}; lower-cased as by -lc: A to Z only",
                hypothesis=_with_lower_case(cased.hypothesis),
                reference=_with_lower_case(cased.reference),
                signature={**cased.signature, "case": "lc-ascii"},
            )


def _with_lower_case(steps: tuple[str, ...]) -> tuple[str, ...]:
    """Return steps, the last of which is `ascii-spaces`, with lower-casing before it."""
    return (*steps[:-1], "ascii-lower", steps[-1])


MEASURES: Mapping[str, Measure] = {measure.metric: measure for measure in read_measures(__file__)}
"""Every metric of sacreBLEU by its short name."""

CHAIN = (
    "bleu",
    "sacrebleu-intl",
    "intl-unsmoothed",
    "multi-bleu",
    "compound-split",
    "get-ende-bleu",
    "get-ende-bleu-quotes",
    "get-ende-bleu-all-quotes",
)
"""From sacreBLEU's BLEU to the paper's and beyond: each metric changes one thing."""

_GROUPS = {
    "sacrebleu-13a": ("bleu",),
    "sacrebleu-13a-lc": ("bleu-lc",),
    "decomposition": tuple(f"{metric}{case}" for metric in CHAIN for case in ("", "-lc")),
    "all": tuple(MEASURES),
}


@cache
def _annexed() -> dict[str, Measure]:
    """Return the measures of the entry points `nmt.metrics`, by name."""
    return {
        measure.metric: measure for group in registry.entries("nmt.metrics") for measure in group
    }


def metric_names() -> list[str]:
    return [*MEASURES, *_annexed(), *_GROUPS, "paper"]


def measures_of(names: Sequence[str], target_language: str) -> list[Measure]:
    """Return the measures called `names`, in any case, each once.

    A name is that of a measure, `sacrebleu-13a[-lc]` (`bleu[-lc]`), `decomposition`, `all`,
    MODULE:FUNCTION, or `paper`: what Table 2 of the paper reports, which is tokenized BLEU, for
    German with compounds split.

    Raises:
        UsageError: an unknown name.
    """
    aliases = {
        **_GROUPS,
        "paper": ("get-ende-bleu-quotes" if target_language == "de" else "multi-bleu",),
    }
    known = {**MEASURES, **_annexed()}
    found: dict[str, Measure] = {}
    for given in names:
        name = given.lower()
        if ":" in name:
            found[given] = Measure(given, given, given)
        elif name not in aliases and name not in known:
            near = nearest(name, metric_names(), "See nmt score --help.")
            raise UsageError(f"there is no metric called {name!r}. {near}")
        else:
            found.update((metric, known[metric]) for metric in aliases.get(name, (name,)))
    return list(found.values())


def score(
    hypotheses: Lines,
    references: Lines | Sequence[Lines],
    metrics: Sequence[str] = DEFAULT,
    target_language: str = "de",
    sources: Lines = (),
) -> list[Score]:
    """Score the output of one system.

    Args:
        hypotheses: detokenized sentences.
        references: as many sentences, or several such lists.
        metrics: as in `measures_of`.
        target_language: of the Moses tokenizer; with "de", `paper` splits compounds.
        sources: the source sentences, for metrics that are functions.

    Raises:
        DataError: no sentence at all, or lists of different length.
        UsageError: an unknown metric or language, or sentences that are not strings.
    """
    check_iterable(metrics, "a list of metrics")
    metrics = list(metrics)
    if not all(isinstance(name, str) for name in [*metrics, target_language]):
        raise UsageError(
            f"metrics and target_language are names, not {metrics!r} and {target_language!r}"
        )
    given = _listed(references) or []
    lists = [given] if any(isinstance(line, str) for line in given) else given
    named = [(f"reference {number}", lines) for number, lines in enumerate(lists, 1)]
    return score_systems([("", _listed(hypotheses))], named, metrics, target_language, sources)


def _listed(lines: Any) -> Any:
    """Return an iterator's lines, and anything else as it is."""
    return list(lines) if isinstance(lines, Iterator) else lines


def score_systems(
    systems: Sequence[Named],
    references: Sequence[Named],
    metrics: Sequence[str] = DEFAULT,
    target_language: str = "de",
    sources: Lines = (),
    labels: Sequence[str | int] = (),
) -> list[Score]:
    """Score several systems; metric by metric, in the systems' order.

    Args:
        labels: the group of each line, for `Score.groups`. The BLEU of one line is sacreBLEU's
            sentence BLEU.
    """
    groups: dict[str | int, list[int]] = {}
    for line, label in enumerate(labels):
        groups.setdefault(label, []).append(line)
    scores = []
    all_measured = measured(systems, references, metrics, target_language, sources)
    for measure, metric, prepared_references, prepared in all_measured:
        for (system, _), lines in zip(systems, prepared, strict=True):
            statistics = _statistics(metric, lines, prepared_references, whole=not groups)
            result = metric._aggregate_and_compute(statistics)
            details: dict[str, Any] = {}
            if measure.kind == "BLEU":
                details = {
                    "precisions": [float(precision) for precision in result.precisions],
                    "brevity_penalty": float(result.bp),
                    "hypothesis_length": int(result.sys_len),
                    "reference_length": int(result.ref_len),
                }
            name = measure.name.format(language=target_language)
            signature = signature_of(measure, metric.get_signature(), target_language)
            of_groups = {
                label: _value(metric, [statistics[i] for i in each])
                for label, each in groups.items()
            }
            score = round(float(result.score), _DIGITS)
            scores.append(Score(measure.metric, name, score, signature, system, details, of_groups))
    return scores


def _value(metric: Any, statistics: Sequence[Any]) -> float:
    if len(statistics) == 1 and hasattr(metric, "effective_order"):  # sentence BLEU
        metric = copy(metric)  # the scores of whole systems must stay without it
        metric.effective_order = True
    return round(float(metric._aggregate_and_compute(statistics).score), _DIGITS)


def measured(
    systems: Sequence[Named],
    references: Sequence[Named],
    metrics: Sequence[str],
    target_language: str,
    sources: Lines = (),
) -> Iterator[tuple[Measure, Any, list[list[str]], list[list[str]]]]:
    """Yield each measure, sacreBLEU's metric, and the lines of every reference and every system
    prepared for it.
    """
    measures = measures_of(metrics, target_language)
    if any("moses" in measure.hypothesis for measure in measures):
        check_language(target_language)
    check_lengths(systems, references)
    texts = [lines for _, lines in (*references, *systems)]
    if any(measure.nbest for measure in measures):
        texts = [[line.partition("\n")[0] for line in lines] for lines in texts]

    @cache
    def prepared(text: int, steps: tuple[str, ...]) -> list[str]:
        """Return the lines after `steps`; sequences of steps with a common beginning share its
        result.
        """
        return (
            list(map(STEPS[steps[-1]](target_language), prepared(text, steps[:-1])))
            if steps
            else list(texts[text])
        )

    for measure in measures:
        reference_lines = [prepared(text, measure.reference) for text in range(len(references))]
        system_lines = [
            prepared(text, measure.hypothesis) for text in range(len(references), len(texts))
        ]
        if measure.nbest:
            system_lines = [list(lines) for _, lines in systems]
        yield measure, _metric(measure, sources), reference_lines, system_lines


def _metric(measure: Measure, sources: Lines) -> Any:
    import sacrebleu.metrics

    from nmt_cli.metrics.add_one import AddOneBLEU

    if ":" in measure.kind:
        return FunctionMetric(measure.metric, measure.kind, measure.settings, sources)
    # force: no warning about tokenized input; the command itself looks for that, once.
    settings = {**measure.settings, "force": True} if measure.kind == "BLEU" else measure.settings
    add_one = settings.get("smooth_method") == "add-k"
    return (AddOneBLEU if add_one else getattr(sacrebleu.metrics, measure.kind))(**settings)


def _statistics(metric: Any, hypotheses: Lines, references: Sequence[Lines], whole: bool) -> Any:
    """Return what a metric counts in each line, in less memory: sacreBLEU's n-grams are held for
    one sentence only.
    """
    if isinstance(metric, FunctionMetric):
        return metric.statistics(hypotheses, references, whole)
    statistics: list[Any] = []
    for hypothesis, *of_sentence in zip(hypotheses, *references, strict=True):
        statistics += metric._extract_corpus_statistics(
            [hypothesis], [[reference] for reference in of_sentence]
        )
    return statistics


def signature_of(measure: Measure, signature: Any, target_language: str) -> str:
    """Return sacreBLEU's signature of a metric that has been used, completed by how the lines were
    prepared.
    """
    for key, value in measure.signature.items():
        signature.update(key, value.format(language=target_language))
    if "moses" in measure.hypothesis:
        signature.update("moses", f"sacremoses-{version('sacremoses')}")
    if measure.hypothesis or ":" in measure.kind:
        signature.update("nmt", __version__)
    return str(signature)


def check_lengths(systems: Sequence[Named], references: Sequence[Named]) -> None:
    """Raise an error unless all are lists of strings, of the same length."""
    if not references or not references[0][1]:
        raise DataError("there is nothing to score: no reference sentence")
    first, expected = references[0][0], len(references[0][1])
    for name, lines in (*references, *systems):
        if (
            lines is None
            or isinstance(lines, str)
            or not all(isinstance(line, str) for line in lines)
        ):
            raise UsageError(f"{name or 'hypotheses'}: expected a list of strings")
        if len(lines) != expected:
            raise DataError(
                f"{name or 'hypotheses'}: {counted(len(lines), 'line')}, but {first} has "
                f"{expected:,}; line n must "
                f"belong to line n of {first}"
            )
