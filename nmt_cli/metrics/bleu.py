"""Scores of translations: each BLEU of the literature by its own name, chrF, TER, and functions.

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
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

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
    name: str  # the full name, in which "{language}" stands for the target language
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
    error: bool = False  # whether less is better


@dataclass(frozen=True)
class Score:
    """The score of one system by one metric."""

    metric: str  # the short name, such as "bleu"
    name: str  # the full name
    score: float  # 0 to 100 for BLEU and chrF. An error rate, such as TER, may exceed 100
    signature: str  # everything that the score depends on, in sacreBLEU's notation
    system: str = ""  # a file
    # Of BLEU: precisions, brevity penalty, lengths in tokens.
    details: Mapping[str, Any] = field(default_factory=dict)
    # By label, the score of these lines.
    groups: Mapping[str | int, float] = field(default_factory=dict)


class PreparedLines(NamedTuple):
    """The lines of every reference and every system, prepared for a measure."""

    measure: Measure
    metric: Any  # sacreBLEU's, or a `FunctionMetric`
    references: list[list[str]]
    systems: list[list[str]]


def read_measures(module: str) -> Iterator[Measure]:
    """Yield the measures in measures.toml, beside the file `module`, cased and lower-cased."""
    content = Path(module).with_name("measures.toml").read_text(encoding="utf-8")
    for metric, fields in tomllib.loads(content).items():
        lower_cased = fields.pop("lower_cased", None)
        hypothesis = tuple(fields.pop("hypothesis", ()))
        reference = tuple(fields.pop("reference", ()))
        cased = Measure(metric, hypothesis=hypothesis, reference=reference, **fields)
        yield cased
        lower = replace(cased, metric=f"{metric}-lc", name=f"{cased.name}; lower-cased")
        if lower_cased == "sacrebleu":
            yield replace(lower, settings={**cased.settings, "lowercase": True})
        elif lower_cased == "perl":
            yield replace(
                lower,
                name=f"{lower.name} as by -lc: A to Z only",
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
    measures = chain.from_iterable(registry.entries("nmt.metrics"))
    return {measure.metric: measure for measure in measures}


def metric_names() -> list[str]:
    return [*MEASURES, *_annexed(), *_GROUPS, "paper"]


def error_rates() -> set[str]:
    """Return the names of the metrics of which less is better."""
    measures = [*MEASURES.values(), *_annexed().values()]
    return {measure.metric for measure in measures if measure.error}


def measures_of(names: Sequence[str], target_language: str) -> list[Measure]:
    """Return the measures called `names`, in any case, each once.

    A name is a measure's name, `sacrebleu-13a[-lc]` (`bleu[-lc]`), `decomposition`, `all`,
    MODULE:FUNCTION, or `paper`: what Table 2 of the paper reports, which is tokenized BLEU, for
    German with compounds split.

    Raises:
        UsageError: an unknown name.
    """
    of_paper = "get-ende-bleu-quotes" if target_language == "de" else "multi-bleu"
    groups = {**_GROUPS, "paper": (of_paper,)}
    known = {**MEASURES, **_annexed()}
    measures: dict[str, Measure] = {}
    for given in names:
        name = given.lower()
        if ":" in name:
            measures[given] = Measure(given, name=given, kind=given)
        elif name in groups:
            measures.update((metric, known[metric]) for metric in groups[name])
        elif name in known:
            measures[name] = known[name]
        else:
            near = nearest(name, metric_names(), "See nmt score --help.")
            raise UsageError(f"there is no metric called {name!r}. {near}")
    return list(measures.values())


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
        target_language: of the Moses tokenizer. With "de", `paper` splits compounds.
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
    references = _listed(references) or []
    if any(isinstance(line, str) for line in references):
        references = [references]
    named = [(f"reference {number}", lines) for number, lines in enumerate(references, 1)]
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
    """Score several systems, metric by metric, in the systems' order.

    Args:
        labels: the group of each line, for `Score.groups`. The BLEU of one line is sacreBLEU's
            sentence BLEU.
    """
    groups: dict[str | int, list[int]] = {}
    for line, label in enumerate(labels):
        groups.setdefault(label, []).append(line)
    scores = []
    for prepared in prepare(systems, references, metrics, target_language, sources):
        measure, metric = prepared.measure, prepared.metric
        for (system, _), lines in zip(systems, prepared.systems, strict=True):
            statistics = _statistics(metric, lines, prepared.references, whole=not groups)
            result = metric._aggregate_and_compute(statistics)
            sentence_metric = copy(metric)
            if hasattr(metric, "effective_order"):  # sentence BLEU
                sentence_metric.effective_order = True
            group_scores = {}
            for label, numbers in groups.items():
                of_group = [statistics[i] for i in numbers]
                metric_of_group = sentence_metric if len(of_group) == 1 else metric
                group_result = metric_of_group._aggregate_and_compute(of_group)
                group_scores[label] = round(float(group_result.score), _DIGITS)
            scores.append(
                Score(
                    measure.metric,
                    name=measure.name.format(language=target_language),
                    score=round(float(result.score), _DIGITS),
                    signature=signature_of(measure, metric.get_signature(), target_language),
                    system=system,
                    details=_bleu_details(result) if measure.kind == "BLEU" else {},
                    groups=group_scores,
                )
            )
    return scores


def _bleu_details(result: Any) -> dict[str, Any]:
    return {
        "precisions": [float(precision) for precision in result.precisions],
        "brevity_penalty": float(result.bp),
        "hypothesis_length": int(result.sys_len),
        "reference_length": int(result.ref_len),
    }


def prepare(
    systems: Sequence[Named],
    references: Sequence[Named],
    metrics: Sequence[str],
    target_language: str,
    sources: Lines = (),
) -> Iterator[PreparedLines]:
    """Yield the lines of every reference and every system, prepared for each measure."""
    measures = measures_of(metrics, target_language)
    if any("moses" in measure.hypothesis for measure in measures):
        check_language(target_language)
    check_lengths(systems, references)
    texts = [lines for _, lines in (*references, *systems)]
    if any(measure.nbest for measure in measures):
        texts = [[line.partition("\n")[0] for line in lines] for lines in texts]

    @cache  # so sequences of steps with a common beginning share its lines
    def after_steps(text: int, steps: tuple[str, ...]) -> list[str]:
        if not steps:
            return list(texts[text])
        last = STEPS[steps[-1]](target_language)
        return list(map(last, after_steps(text, steps[:-1])))

    of_references = range(len(references))  # in `texts`
    of_systems = range(len(references), len(texts))
    for measure in measures:
        reference_lines = [after_steps(text, measure.reference) for text in of_references]
        if measure.nbest:
            system_lines = [list(lines) for _, lines in systems]
        else:
            system_lines = [after_steps(text, measure.hypothesis) for text in of_systems]
        yield PreparedLines(measure, _metric(measure, sources), reference_lines, system_lines)


def check_metric(name: str, target_language: str) -> None:
    """Raise UsageError unless this is the short name of one metric, which can be used."""
    line = [("", ["a"])]
    names = [lines.measure.metric for lines in prepare(line, line, [name], target_language)]
    if names != [name]:
        raise UsageError(f"{name} is not the short name of one metric: see nmt score --help")


def _metric(measure: Measure, sources: Lines) -> Any:
    import sacrebleu.metrics

    from nmt_cli.metrics.add_one import AddOneBLEU

    if ":" in measure.kind:
        return FunctionMetric(measure.metric, measure.kind, measure.settings, sources)
    settings = dict(measure.settings)
    if measure.kind == "BLEU":
        settings["force"] = True  # no warning about tokenized input: `nmt score` looks for it, once
    if settings.get("smooth_method") == "add-k":
        return AddOneBLEU(**settings)
    return getattr(sacrebleu.metrics, measure.kind)(**settings)


def _statistics(metric: Any, hypotheses: Lines, references: Sequence[Lines], whole: bool) -> Any:
    """Return what a metric counts in each line."""
    if isinstance(metric, FunctionMetric):
        return metric.statistics(hypotheses, references, whole)
    statistics: list[Any] = []
    # Line by line, because sacreBLEU holds the n-grams of all lines that it is given.
    for hypothesis, *of_sentence in zip(hypotheses, *references, strict=True):
        statistics += metric._extract_corpus_statistics(
            [hypothesis], [[reference] for reference in of_sentence]
        )
    return statistics


def signature_of(measure: Measure, signature: Any, target_language: str) -> str:
    """Return sacreBLEU's signature of a used metric, with the preparation of the lines."""
    for key, value in measure.signature.items():
        signature.update(key, value.format(language=target_language))
    if "moses" in measure.hypothesis:
        signature.update("moses", f"sacremoses-{version('sacremoses')}")
    if measure.hypothesis or ":" in measure.kind:
        signature.update("nmt", __version__)
    return str(signature)


def check_lengths(systems: Sequence[Named], references: Sequence[Named]) -> None:
    """Raise an error unless all are lists of strings with the same length."""
    if not references or not references[0][1]:
        raise DataError("there is nothing to score: no reference sentence")
    first, expected = references[0][0], len(references[0][1])
    for name, lines in (*references, *systems):
        name = name or "hypotheses"
        is_list = lines is not None and not isinstance(lines, str)
        if not is_list or not all(isinstance(line, str) for line in lines):
            raise UsageError(f"{name}: expected a list of strings")
        if len(lines) != expected:
            raise DataError(
                f"{name}: {counted(len(lines), 'line')}, but {first} has {expected:,}; line n must "
                f"belong to line n of {first}"
            )
