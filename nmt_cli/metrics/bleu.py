"""Scores of translated lines: every BLEU that the literature reports, by its full name, and chrF and TER beside it.

The counting is sacreBLEU's for all of them. The BLEU of multi-bleu.perl is sacreBLEU's without tokenisation and without
smoothing, over lines that were prepared as that script's users prepare them (`nmt_cli.metrics.preparation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

from nmt_cli import __version__
from nmt_cli.errors import DataError, UsageError, nearest
from nmt_cli.metrics.preparation import Preparation, PreparedLines, check_language

MAIN = ("sacrebleu-13a", "chrf", "ter", "paper")
"""The measures to look at first; "paper" stands for the one that the paper reports for the language."""

_DIGITS = 10  # decimals of a score: 100 for identical text, not 100.00000000000004


@dataclass(frozen=True)
class Measure:
    """One way to score, a row of the table `MEASURES`.

    Args:
        id: the stable short name.
        name: the full name; "{language}" in it stands for the target language.
        metric: the class in sacrebleu.metrics that counts.
        settings: what it is built with.
        hypothesis: steps that prepare a hypothesis line, names of `preparation.STEPS`.
        reference: the same for a reference line.
        signature: what the steps add to sacreBLEU's signature.
    """

    id: str
    name: str
    metric: str = "BLEU"
    settings: Mapping[str, Any] = field(default_factory=dict)
    hypothesis: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    signature: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """One figure.

    Args:
        metric: the measure's full name.
        score: 0 to 100 for BLEU and chrF; TER is 0 at best and may exceed 100.
        signature: everything that the figure depends on, in sacreBLEU's notation.
        id: the measure's stable short name, such as "sacrebleu-13a".
        system: whose output was scored, as it was named (a file).
        details: what the score was computed from: for BLEU precisions, brevity penalty and lengths in tokens.
    """

    metric: str
    score: float
    signature: str
    id: str
    system: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """A row of the decomposition: the one thing that differs from the row above, and what it does to the score."""

    change: str
    cased: Score
    lowercased: Score
    cased_delta: float | None  # None in the first row
    lowercased_delta: float | None


_MULTI_BLEU = {"tokenize": "none", "smooth_method": "none"}


def _multi_bleu(id: str, name: str, hypothesis: str, reference: str, **signature: str) -> Iterator[Measure]:
    """A measure by multi-bleu.perl's arithmetic, cased and (`-lc`) lower-cased; steps are given as words."""
    cased = Measure(
        id,
        name,
        settings=_MULTI_BLEU,
        hypothesis=(*hypothesis.split(), "ascii-spaces"),
        reference=(*reference.split(), "ascii-spaces"),
        signature=signature,
    )
    yield cased
    yield replace(
        cased,
        id=f"{id}-lc",
        name=f"{name}; lower-cased as by -lc, ASCII letters alone",
        hypothesis=(*hypothesis.split(), "ascii-lower", "ascii-spaces"),
        reference=(*reference.split(), "ascii-lower", "ascii-spaces"),
        signature={**signature, "case": "lc-ascii"},
    )


def _sacrebleu(id: str, name: str, **settings: str) -> Iterator[Measure]:
    """A measure of sacreBLEU, cased and lower-cased."""
    yield Measure(id, name, settings=settings)
    yield Measure(f"{id}-lc", f"{name}; lower-cased", settings={**settings, "lowercase": True})


_MOSES = "moses-{language}"
_TOKENISED = "tokenised BLEU: multi-bleu.perl, Moses tokeniser -l {language}"
_ALL_MEASURES = (
    *_sacrebleu("sacrebleu-13a", "sacreBLEU BLEU, tokenisation 13a (mteval-v13a)", tokenize="13a"),
    *_sacrebleu("sacrebleu-char", "sacreBLEU BLEU, every character a token", tokenize="char"),
    *_sacrebleu("sacrebleu-intl", "sacreBLEU BLEU, tokenisation intl (mteval-v14)", tokenize="intl"),
    *_sacrebleu(
        "intl-unsmoothed",
        "sacreBLEU BLEU, tokenisation intl, no smoothing",
        tokenize="intl",
        smooth_method="none",
    ),
    *_multi_bleu("multi-bleu", _TOKENISED, "moses", "moses", tok=_MOSES),
    *_multi_bleu(
        "compound-split",
        f"{_TOKENISED}, compounds split",
        "moses compounds",
        "moses compounds",
        tok=_MOSES,
        compounds="split",
    ),
    *_multi_bleu(
        "get-ende-bleu",
        f"{_TOKENISED}, compounds split, Unicode punctuation of the hypothesis replaced (get_ende_bleu.sh)",
        "punctuation moses compounds",
        "moses compounds",
        tok=_MOSES,
        compounds="split",
        hyp="ascii-punctuation",
    ),
    *_multi_bleu(
        "get-ende-bleu-quotes",
        f"{_TOKENISED}, compounds split, Unicode punctuation of the hypothesis and quotes of the reference replaced "
        "(the paper's EN-DE)",
        "punctuation moses compounds",
        "quotes moses compounds",
        tok=_MOSES,
        compounds="split",
        hyp="ascii-punctuation",
        ref="ascii-quotes",
    ),
    *_multi_bleu(
        "get-ende-bleu-all-quotes",
        f"{_TOKENISED}, compounds split, Unicode punctuation of the hypothesis and quotes of both sides replaced",
        "punctuation quotes moses compounds",
        "quotes moses compounds",
        tok=_MOSES,
        compounds="split",
        hyp="ascii-punctuation-quotes",
        ref="ascii-quotes",
    ),
    *_multi_bleu("multi-bleu-untokenised", "multi-bleu.perl on the lines as they are (white space alone)", "", ""),
    Measure(
        "multi30k",
        "Multi30k's BLEU: lower-cased (every letter), Moses tokeniser -l {language}, multi-bleu.perl",
        settings=_MULTI_BLEU,
        hypothesis=("lower", "moses", "ascii-spaces"),
        reference=("lower", "moses", "ascii-spaces"),
        signature={"case": "lc", "tok": _MOSES},
    ),
    Measure("chrf", "chrF2 (sacreBLEU)", "CHRF"),
    Measure("chrf++", "chrF2++ (sacreBLEU)", "CHRF", {"word_order": 2}),
    Measure("ter", "TER (sacreBLEU)", "TER"),
)
MEASURES: Mapping[str, Measure] = {measure.id: measure for measure in _ALL_MEASURES}
"""Every measure by its id."""

GROUPS = {"all": tuple(MEASURES), "bleu": tuple(id for id, measure in MEASURES.items() if measure.metric == "BLEU")}
"""Names that stand for several measures."""

CHAIN = (
    ("sacrebleu-13a", "sacreBLEU, tokenisation 13a"),
    ("sacrebleu-intl", "tokenisation intl"),
    ("intl-unsmoothed", "no smoothing"),
    ("multi-bleu", "Moses tokeniser: multi-bleu.perl"),
    ("compound-split", "compounds split, both sides"),
    ("get-ende-bleu", "hypothesis: Unicode punctuation replaced"),
    ("get-ende-bleu-quotes", "reference: quotes replaced"),
    ("get-ende-bleu-all-quotes", "hypothesis: quotes replaced, too"),
)
"""The way from sacreBLEU to the paper's BLEU, one change after the other."""


def resolve(names: Sequence[str], target_language: str) -> list[Measure]:
    """The measures that `names` stand for, each once, in their order.

    "paper" is what Table 2 of the paper reports: for German with compounds split, else plain tokenised BLEU.

    Raises:
        UsageError: an unknown name.
    """
    aliases = {**GROUPS, "paper": ("get-ende-bleu-quotes" if target_language == "de" else "multi-bleu",)}
    ids: dict[str, None] = {}
    for name in names:
        if name not in aliases and name not in MEASURES:
            raise UsageError(f"there is no metric called {name!r}. {nearest(name, [*MEASURES, *aliases])}")
        ids.update(dict.fromkeys(aliases.get(name, (name,))))
    return [MEASURES[id] for id in ids]


def score(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    metrics: Sequence[str] = MAIN,
    target_language: str = "de",
) -> list[Score]:
    """The scores of one system's output.

    Args:
        hypotheses: plain text, detokenised, a sentence each.
        references: as many sentences, or several such lists (several references).
        metrics: ids of `MEASURES`, names of `GROUPS`, or "paper".
        target_language: of the Moses tokeniser; "de" has compounds split in "paper".

    Raises:
        DataError: no sentence at all, or lists of different length.
        UsageError: an unknown metric or language.
    """
    return score_systems([("", hypotheses)], references, metrics, target_language)


def score_systems(
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[str] | Sequence[Sequence[str]],
    metrics: Sequence[str] = MAIN,
    target_language: str = "de",
    progress: Callable[[str], None] = lambda what: None,
) -> list[Score]:
    """The scores of several systems, measure by measure, in the systems' order; as `score` otherwise.

    Args:
        systems: names and their sentences.
        progress: told the id of each measure before it is computed.
    """
    scores = []
    for measure, metric, prepared in measured(systems, references, metrics, target_language, progress):
        for (system, _), lines in zip(systems, prepared, strict=True):
            result = metric.corpus_score(lines, None)
            scores.append(_score(measure, metric, result, system, target_language))
    return scores


def measured(
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[str] | Sequence[Sequence[str]],
    metrics: Sequence[str],
    target_language: str,
    progress: Callable[[str], None] = lambda what: None,
) -> Iterator[tuple[Measure, Any, list[list[str]]]]:
    """Each measure with its sacreBLEU metric, which holds the references, and every system's lines prepared for it."""
    check_language(target_language)
    lists = _check(systems, references)
    preparation = Preparation(target_language)
    prepared_references = [preparation.of(lines) for lines in lists]
    prepared_systems = [preparation.of(lines) for _, lines in systems]
    for measure in resolve(metrics, target_language):
        progress(measure.id)
        metric = _build(measure, prepared_references)
        yield measure, metric, [lines.after(measure.hypothesis) for lines in prepared_systems]


def signature_of(measure: Measure, metric: Any, target_language: str) -> str:
    """sacreBLEU's signature of a metric that has been used, completed by how the lines were prepared."""
    signature = metric.get_signature()
    for key, value in measure.signature.items():
        signature.update(key, value.format(language=target_language))
    if "moses" in measure.hypothesis:
        signature.update("moses", f"sacremoses-{version('sacremoses')}")
    if measure.hypothesis:
        signature.update("nmt", __version__)
    return str(signature)


def decomposition(scores: Sequence[Score]) -> list[Change]:
    """The way from sacreBLEU to the paper's BLEU by one system's scores; rows without their scores are left out."""
    by_id = {score.id: score for score in scores}
    rows: list[Change] = []
    for id, change in CHAIN:
        if id in by_id and f"{id}-lc" in by_id:
            cased, lowercased = by_id[id], by_id[f"{id}-lc"]
            above = rows[-1] if rows else None
            rows.append(
                Change(
                    change,
                    cased,
                    lowercased,
                    cased.score - above.cased.score if above else None,
                    lowercased.score - above.lowercased.score if above else None,
                )
            )
    return rows


def _check(
    systems: Sequence[tuple[str, Sequence[str]]], references: Sequence[str] | Sequence[Sequence[str]]
) -> list[list[str]]:
    """The lists of references, having as many lines as every system."""
    flat = [line for line in references if isinstance(line, str)]
    lists = [flat] if flat else [list(lines) for lines in references if not isinstance(lines, str)]
    if not lists or not lists[0]:
        raise DataError("there is nothing to score: no reference sentence")
    counts = [("reference", lines) for lines in lists] + [(name or "hypotheses", lines) for name, lines in systems]
    for name, lines in counts:
        if len(lines) != len(lists[0]):
            raise DataError(f"{name}: {len(lines)} sentences, but the reference has {len(lists[0])}")
    return lists


def _build(measure: Measure, references: Sequence[PreparedLines]) -> Any:
    import sacrebleu.metrics

    lines = [reference.after(measure.reference) for reference in references]
    # sacreBLEU warns of tokenised input if not forced; the command looks for that itself, once and not per measure.
    forced = {"force": True} if measure.metric == "BLEU" else {}
    return getattr(sacrebleu.metrics, measure.metric)(**measure.settings, **forced, references=lines)


def _score(measure: Measure, metric: Any, result: Any, system: str, language: str) -> Score:
    details: dict[str, Any] = {}
    if measure.metric == "BLEU":
        details = {
            "precisions": [float(precision) for precision in result.precisions],
            "brevity_penalty": float(result.bp),
            "hypothesis_length": int(result.sys_len),
            "reference_length": int(result.ref_len),
        }
    return Score(
        measure.name.format(language=language),
        round(float(result.score), _DIGITS),
        signature_of(measure, metric, language),
        measure.id,
        system,
        details,
    )
