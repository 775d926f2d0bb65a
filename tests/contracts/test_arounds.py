"""Every registered Around: what it owes to a line with nothing to do, and to several outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_checkpoints import make_checkpoint

import nmt_cli
from nmt_cli import registry
from nmt_cli.decoding.outputs import Translation
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import UsageError

__all__ = ["make_checkpoint"]

FLAGS: dict[str, dict[str, Any]] = {
    "placing": {"markup": True, "protect": "[0-9]+"},
    "sentences": {"split_sentences": True},
    "unknown_words": {"replace_unknown": True},
    "alignments": {"align": True},
}
"""Options that switch each on. One of your own is added here."""

LINES = ["a b c d e", "", "h g", "  ", "f g h", "a b c d e", "h g f e d c b a"]
"""Lines with nothing to do: no tag, a sentence each, words of the vocabulary."""


@pytest.fixture(params=registry.names("around"))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def plain(
    make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Translator:
    """A model of whole words, so that all can go around it."""
    folder = make_checkpoint(
        tmp_path_factory.mktemp("words") / "checkpoint", letters="a b c d e f g h", subwords="none"
    )
    return nmt_cli.load(folder, device="cpu", beam=3, max_length_offset=3)


def around(plain: Translator, *names: str) -> Translator:
    options = plain.options.replaced(
        {key: value for name in names for key, value in FLAGS[name].items()}
    )
    return dataclasses.replace(plain, options=options)


def texts(translations: list[Translation]) -> list[list[str]]:
    return [[output.text for output in translation.outputs] for translation in translations]


@pytest.mark.parametrize("nbest", [1, 3])
def test_what_has_nothing_to_do_changes_nothing(plain: Translator, name: str, nbest: int) -> None:
    """But for unknown words, which it may allow. Lines keep their order, and their sources."""
    translator = around(plain, name)
    search = {"unknown": translator.chain.allows_unknown, "nbest": nbest}
    lines = list(translator.translate_detailed(LINES, **search))
    assert [line.source for line in lines] == LINES
    if not translator.chain.allows_unknown:
        expected = list(plain.translate_detailed(LINES, **search))
        assert texts(lines) == texts(expected)
        assert [output.score for line in lines for output in line.outputs] == pytest.approx(
            [output.score for line in expected for output in line.outputs]
        )
    assert texts(lines)[1] == texts(lines)[3] == [""]
    assert [len(line.outputs) for line in lines] == [nbest if line.strip() else 1 for line in LINES]


def test_a_line_has_the_same_translation_alone(plain: Translator, name: str) -> None:
    translator = around(plain, name)
    together = texts(list(translator.translate_detailed(LINES)))
    assert [texts(translator.translate_window([line]))[0] for line in LINES] == together
    assert texts(list(translator.translate_detailed(LINES, batch_tokens=1))) == together


def test_it_is_off_by_default_and_named_by_its_flags(plain: Translator, name: str) -> None:
    component = registry.find("around", name)
    assert plain.chain.arounds == []
    assert component.config() == component.config()
    (one,) = around(plain, name).chain.arounds
    assert one.name.startswith("--")
    assert isinstance(one.order, int)


def test_prefixes_are_taken_or_refused(plain: Translator, name: str) -> None:
    translator = around(plain, name)
    (one,) = translator.chain.arounds
    if one.takes_prefix:
        assert translator.translate(["a b"], prefixes=["h g"])[0].startswith("h g")
    else:
        with pytest.raises(UsageError, match=f"{one.name} cannot be used with prefixes"):
            translator.translate(["a b"], prefixes=["h g"])
