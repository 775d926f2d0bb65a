from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nmt_cli
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.registry import extras_of

LINES = ["abc", "hgfedcba", "", "a", "bad"]


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> nmt_cli.Translator:
    return nmt_cli.load(tiny_checkpoint, device="cpu", max_length_offset=5)


def test_options_of_load_are_defaults(
    translator: nmt_cli.Translator, tiny_checkpoint: Path
) -> None:
    default = translator.translate(LINES)
    narrow = translator.translate(LINES, beam=1, max_length_offset=1)
    assert [len(text) for text in default] != [len(text) for text in narrow]
    other = nmt_cli.load(str(tiny_checkpoint), device="cpu", beam=1, max_length_offset=1)
    assert other.translate(LINES) == narrow
    ensemble = nmt_cli.load(
        [tiny_checkpoint, tiny_checkpoint], device="cpu", beam=1, max_length_offset=1
    )
    assert ensemble.translate(LINES) == narrow
    assert translator.translate(LINES) == default


def test_wrong_options_are_named(translator: nmt_cli.Translator, tiny_checkpoint: Path) -> None:
    calls: list[Any] = [
        partial(nmt_cli.load, tiny_checkpoint),
        partial(translator.translate, LINES),
    ]
    calls.append(partial(translator.translate_detailed, LINES))
    for call in calls:
        for given, named in (
            ({"beem": 4}, "beem.* beam"),
            ({"beam": 0}, "beam"),
            ({"unknown": "no"}, "unknown"),
        ):
            with pytest.raises(UsageError, match=named):
                call(**given)
    wrong: list[dict[str, Any]] = [
        {"checkpoints": None},
        {"device": 0},
        {"engine": None},
        {"dictionary": 5},
    ]
    for given in wrong:
        with pytest.raises(UsageError):
            nmt_cli.load(**{"checkpoints": tiny_checkpoint, **given})
    with pytest.raises(CheckpointError, match="aaa"):
        nmt_cli.load("a" * 300)


OPTIONS = {
    "beam": 2,
    "alpha": 1.5,
    "nbest": 2,
    "min_length": 3,
    "unknown": True,
    "sample": True,
    "temperature": 2.0,
    "top_k": 4,
    "top_p": 0.5,
    "seed": 6,
    "batch_tokens": 7,
    "read_ahead": 8,
    "max_source_length": 9,
    "max_length_offset": 10,
    "max_length": 11,
    "no_repeat_ngram": 12,
    "replace_unknown": True,
    "constrained": True,
    "align": True,
    "tag": "<2de>",
    "markup": True,
    "protect": "a",
    "glossary": "terms.tsv",
    "split_sentences": True,
    "sentence_language": "fr",
}
NEEDED = {
    "sentence_language": "split_sentences",
    "temperature": "sample",
    "top_k": "sample",
    "top_p": "sample",
}
NEEDED |= {"seed": "sample"}
"""The option that must be true for another one."""


def test_every_keyword_of_version_1_sets_its_option_alone() -> None:
    default = settings(TranslateOptions())
    for name, value in OPTIONS.items():
        given: dict[str, Any] = {NEEDED.get(name, name): True, name: value}
        options = TranslateOptions().replaced(given)
        assert options == TranslateOptions(**given)
        assert {
            key: value for key, value in settings(options).items() if value != default[key]
        } == given


def test_every_option_has_a_keyword() -> None:
    names = settings(TranslateOptions()).keys() - {"early_termination"}
    assert OPTIONS.keys() <= names
    assert TranslateOptions().replaced(dict.fromkeys(names)) == TranslateOptions()


def settings(options: TranslateOptions) -> dict[str, Any]:
    """All options by name, registered extras included."""
    groups = {"search": options.search}
    groups |= {
        extra.name: options.extras.get(extra.name, extra.config())
        for extra in extras_of(TranslateOptions)
    }
    flat = {**vars(options)} | {
        name: value for group in groups.values() for name, value in vars(group).items()
    }
    return {name: value for name, value in flat.items() if name not in {"extras", *groups}}


def test_a_translator_is_shown_in_short(translator: nmt_cli.Translator) -> None:
    assert len(repr(translator)) < 1000
    assert "beam=" in repr(translator)


def test_score() -> None:
    (bleu,) = nmt_cli.score(
        ["the cat sat on the mat"], ["the cat sat on the mat"], metrics=["bleu"]
    )
    assert bleu.score == pytest.approx(100)
    assert "tok:13a" in bleu.signature
    assert nmt_cli.score(iter(["a b c d"]), iter(["a b c d"]), metrics=iter(["bleu"]))[
        0
    ].score == pytest.approx(100)
    for wrong in (
        {"metrics": None},
        {"metrics": "bleu"},
        {"metrics": [None]},
        {"target_language": 7},
    ):
        with pytest.raises(UsageError, match="metrics"):
            nmt_cli.score(["a"], ["a"], **wrong)  # type: ignore[arg-type]
    for hypotheses, references in (
        ([None], ["a"]),
        (None, ["a"]),
        (["a"], ["a", None]),
        (["a"], "a"),
    ):
        with pytest.raises(UsageError, match="list of strings"):
            nmt_cli.score(hypotheses, references)  # type: ignore[arg-type]
