"""Scores of translations: every BLEU of the literature under a name of its own, chrF and TER.

sacreBLEU does the counting. The BLEU of multi-bleu.perl is sacreBLEU's without tokenization and without smoothing, on
lines prepared as users of that script prepare them (`nmt_cli.metrics.preparation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from typing import Any

from nmt_cli import __version__
from nmt_cli.errors import DataError, UsageError, check_iterable, counted, nearest
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
    kind: str = "BLEU"  # or CHRF or TER
    settings: Mapping[str, Any] = field(default_factory=dict)  # arguments of sacreBLEU's class for this kind
    hypothesis: tuple[str, ...] = ()  # the steps that prepare a hypothesis line, names of `preparation.STEPS`
    reference: tuple[str, ...] = ()  # the same for a reference line
    signature: Mapping[str, str] = field(default_factory=dict)  # entries added to sacreBLEU's signature


@dataclass(frozen=True)
class Score:
    """The score of one system by one metric."""

    metric: str  # the short name, such as "bleu"
    name: str  # the full name
    score: float  # 0 to 100 for BLEU and chrF; TER is an error rate, which may exceed 100
    signature: str  # everything that the score depends on, in sacreBLEU's notation
    system: str = ""  # a file
    details: Mapping[str, Any] = field(default_factory=dict)  # of BLEU: precisions, brevity penalty, lengths in tokens


_MULTI_BLEU = {"tokenize": "none", "smooth_method": "none"}


def _multi_bleu(metric: str, name: str, hypothesis: str, reference: str, **signature: str) -> Iterator[Measure]:
    """Two metrics that count as multi-bleu.perl does, cased and lower-cased (`-lc`)."""
    for suffix, more_name, case, steps in (
        ("", "", {}, ("ascii-spaces",)),
        ("-lc", "; lower-cased as by -lc: A to Z only", {"case": "lc-ascii"}, ("ascii-lower", "ascii-spaces")),
    ):
        both_sides = (*hypothesis.split(), *steps), (*reference.split(), *steps)
        yield Measure(metric + suffix, name + more_name, "BLEU", _MULTI_BLEU, *both_sides, {**signature, **case})


def _sacrebleu(metric: str, name: str, **settings: Any) -> Iterator[Measure]:
    """Two metrics of sacreBLEU, cased and lower-cased."""
    cased = Measure(metric, name, settings=settings)
    yield cased
    yield replace(cased, metric=f"{metric}-lc", name=f"{name}; lower-cased", settings={**settings, "lowercase": True})


_MOSES = {"tok": "moses-{language}"}
_SPLIT = {**_MOSES, "compounds": "split"}
_TOKENIZED = "tokenized BLEU: multi-bleu.perl, Moses tokenizer -l {language}"
_PUNCTUATION = f"{_TOKENIZED}, compounds split, Unicode punctuation of the hypothesis"
_MULTI30K = ("lower", "moses", "ascii-spaces")

_ALL_MEASURES = (
    *_sacrebleu("bleu", "sacreBLEU BLEU, tokenization 13a (mteval-v13a)", tokenize="13a"),
    *_sacrebleu("sacrebleu-char", "sacreBLEU BLEU, every character a token", tokenize="char"),
    *_sacrebleu("sacrebleu-intl", "sacreBLEU BLEU, tokenization intl (mteval-v14)", tokenize="intl"),
    *_sacrebleu(
        "intl-unsmoothed", "sacreBLEU BLEU, tokenization intl, no smoothing", tokenize="intl", smooth_method="none"
    ),
    *_multi_bleu("multi-bleu", _TOKENIZED, "moses", "moses", **_MOSES),
    *_multi_bleu("compound-split", f"{_TOKENIZED}, compounds split", "moses compounds", "moses compounds", **_SPLIT),
    *_multi_bleu(
        "get-ende-bleu",
        f"{_PUNCTUATION} replaced (get_ende_bleu.sh)",
        "punctuation moses compounds",
        "moses compounds",
        **_SPLIT,
        hyp="ascii-punctuation",
    ),
    *_multi_bleu(
        "get-ende-bleu-quotes",
        f"{_PUNCTUATION} and quotes of the reference replaced (the paper's EN-DE)",
        "punctuation moses compounds",
        "quotes moses compounds",
        **_SPLIT,
        hyp="ascii-punctuation",
        ref="ascii-quotes",
    ),
    *_multi_bleu(
        "get-ende-bleu-all-quotes",
        f"{_PUNCTUATION} and quotes of both sides replaced",
        "punctuation quotes moses compounds",
        "quotes moses compounds",
        **_SPLIT,
        hyp="ascii-punctuation-quotes",
        ref="ascii-quotes",
    ),
    *_multi_bleu("multi-bleu-untokenised", "multi-bleu.perl on the lines as they are", "", ""),
    Measure(
        "multi30k",
        "Multi30k's BLEU: lower-cased (every letter), Moses tokenizer -l {language}, multi-bleu.perl",
        settings=_MULTI_BLEU,
        hypothesis=_MULTI30K,
        reference=_MULTI30K,
        signature={"case": "lc", **_MOSES},
    ),
    Measure("chrf", "chrF2 (sacreBLEU)", "CHRF"),
    Measure("chrf++", "chrF2++ (sacreBLEU)", "CHRF", {"word_order": 2}),
    Measure("ter", "TER (sacreBLEU)", "TER"),
)
MEASURES: Mapping[str, Measure] = {measure.metric: measure for measure in _ALL_MEASURES}
"""Every metric by its short name."""

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


def measures_of(names: Sequence[str], target_language: str) -> list[Measure]:
    """Return the measures called `names`, in any case, each once.

    A name is that of a measure, `sacrebleu-13a[-lc]` (`bleu[-lc]`), `decomposition`, `all`, or `paper`: what Table 2 of
    the paper reports, which is tokenized BLEU, for German with compounds split.

    Raises:
        UsageError: an unknown name.
    """
    aliases = {**_GROUPS, "paper": ("get-ende-bleu-quotes" if target_language == "de" else "multi-bleu",)}
    metrics: dict[str, None] = {}
    for name in map(str.lower, names):
        if name not in aliases and name not in MEASURES:
            near = nearest(name, [*MEASURES, *aliases], "See nmt score --help.")
            raise UsageError(f"there is no metric called {name!r}. {near}")
        metrics.update(dict.fromkeys(aliases.get(name, (name,))))
    return [MEASURES[metric] for metric in metrics]


def score(
    hypotheses: Lines,
    references: Lines | Sequence[Lines],
    metrics: Sequence[str] = DEFAULT,
    target_language: str = "de",
) -> list[Score]:
    """Score the output of one system.

    Args:
        hypotheses: detokenized sentences.
        references: as many sentences, or several such lists.
        metrics: as in `measures_of`.
        target_language: of the Moses tokenizer; with "de", `paper` splits compounds.

    Raises:
        DataError: no sentence at all, or lists of different length.
        UsageError: an unknown metric or language, or sentences that are not strings.
    """
    check_iterable(metrics, "a list of metrics")
    metrics = list(metrics)
    if not all(isinstance(name, str) for name in [*metrics, target_language]):
        raise UsageError(f"metrics and target_language are names, not {metrics!r} and {target_language!r}")
    given = _listed(references) or []
    lists = [given] if any(isinstance(line, str) for line in given) else given
    named = [(f"reference {number}", lines) for number, lines in enumerate(lists, 1)]
    return score_systems([("", _listed(hypotheses))], named, metrics, target_language)


def _listed(lines: Any) -> Any:
    """Return an iterator's lines, and anything else as it is."""
    return list(lines) if isinstance(lines, Iterator) else lines


def score_systems(
    systems: Sequence[Named],
    references: Sequence[Named],
    metrics: Sequence[str] = DEFAULT,
    target_language: str = "de",
) -> list[Score]:
    """Score several systems; metric by metric, in the systems' order."""
    scores = []
    for measure, metric, prepared_references, prepared in measured(systems, references, metrics, target_language):
        for (system, _), lines in zip(systems, prepared, strict=True):
            result = _corpus_score(metric, lines, prepared_references)
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
            scores.append(Score(measure.metric, name, round(float(result.score), _DIGITS), signature, system, details))
    return scores


def measured(
    systems: Sequence[Named], references: Sequence[Named], metrics: Sequence[str], target_language: str
) -> Iterator[tuple[Measure, Any, list[list[str]], list[list[str]]]]:
    """Yield each measure, sacreBLEU's metric, and the lines of every reference and every system prepared for it."""
    measures = measures_of(metrics, target_language)
    if any("moses" in measure.hypothesis for measure in measures):
        check_language(target_language)
    _check_lengths(systems, references)
    texts = [lines for _, lines in (*references, *systems)]

    @cache
    def prepared(text: int, steps: tuple[str, ...]) -> list[str]:
        """Return the lines after `steps`; sequences of steps with a common beginning share its result."""
        return list(map(STEPS[steps[-1]](target_language), prepared(text, steps[:-1]))) if steps else list(texts[text])

    for measure in measures:
        reference_lines = [prepared(text, measure.reference) for text in range(len(references))]
        system_lines = [prepared(text, measure.hypothesis) for text in range(len(references), len(texts))]
        yield measure, _sacrebleu_metric(measure), reference_lines, system_lines


def _sacrebleu_metric(measure: Measure) -> Any:
    import sacrebleu.metrics

    # force: no warning about tokenized input; the command itself looks for that, once.
    settings = {**measure.settings, "force": True} if measure.kind == "BLEU" else measure.settings
    return getattr(sacrebleu.metrics, measure.kind)(**settings)


def _corpus_score(metric: Any, hypotheses: Lines, references: Sequence[Lines]) -> Any:
    """Return what `metric.corpus_score` returns, in less time and memory: n-grams are held for one sentence only."""
    statistics: list[Any] = []
    for hypothesis, *of_sentence in zip(hypotheses, *references, strict=True):
        statistics += metric._extract_corpus_statistics([hypothesis], [[reference] for reference in of_sentence])
    return metric._aggregate_and_compute(statistics)


def signature_of(measure: Measure, signature: Any, target_language: str) -> str:
    """Return sacreBLEU's signature of a metric that has been used, completed by how the lines were prepared."""
    for key, value in measure.signature.items():
        signature.update(key, value.format(language=target_language))
    if "moses" in measure.hypothesis:
        signature.update("moses", f"sacremoses-{version('sacremoses')}")
    if measure.hypothesis:
        signature.update("nmt", __version__)
    return str(signature)


def _check_lengths(systems: Sequence[Named], references: Sequence[Named]) -> None:
    """Raise an error unless all are lists of strings, of the same length."""
    if not references or not references[0][1]:
        raise DataError("there is nothing to score: no reference sentence")
    first, expected = references[0][0], len(references[0][1])
    for name, lines in (*references, *systems):
        if lines is None or isinstance(lines, str) or not all(isinstance(line, str) for line in lines):
            raise UsageError(f"{name or 'hypotheses'}: expected a list of strings")
        if len(lines) != expected:
            raise DataError(
                f"{name or 'hypotheses'}: {counted(len(lines), 'line')}, but {first} has {expected:,}; line n must "
                f"translate the sentence of line n of {first}"
            )
