from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nmt_cli
from nmt_cli.decoding.options import SamplingOptions, SearchOptions, TranslateOptions
from nmt_cli.errors import CheckpointError, UsageError

LINES = ["abc", "hgfedcba", "", "a", "bad"]


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> nmt_cli.Translator:
    return nmt_cli.load(tiny_checkpoint, device="cpu", max_length_offset=5)


def test_options_of_load_are_defaults(translator: nmt_cli.Translator, tiny_checkpoint: Path) -> None:
    default, narrow = translator.translate(LINES), translator.translate(LINES, beam=1, max_length_offset=1)
    assert [len(text) for text in default] != [len(text) for text in narrow]
    other = nmt_cli.load(str(tiny_checkpoint), device="cpu", beam=1, max_length_offset=1)
    assert other.translate(LINES) == narrow
    ensemble = nmt_cli.load([tiny_checkpoint, tiny_checkpoint], device="cpu", beam=1, max_length_offset=1)
    assert ensemble.translate(LINES) == narrow
    assert translator.translate(LINES) == default
    with pytest.raises(UsageError, match="NoneType"):
        translator.translate(None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="beam"):
        nmt_cli.load(tiny_checkpoint, beam=0)
    wrong: list[dict[str, Any]] = [
        *({"checkpoints": None}, {"device": 0}, {"device": None}, {"engine": None}, {"dictionary": 5}),
        *({"unknown": "no"}, {"sample": "no"}, {"beam": "4"}),
    ]
    for given in wrong:
        with pytest.raises(UsageError):
            nmt_cli.load(**{"checkpoints": tiny_checkpoint, **given})
    with pytest.raises(CheckpointError, match="aaa"):
        nmt_cli.load("a" * 300)
    for unknown in (partial(nmt_cli.load, tiny_checkpoint), partial(translator.translate, LINES)):
        with pytest.raises(TypeError, match="beem"):
            unknown(beem=4)  # type: ignore[operator]


OPTIONS = {
    "beam": 2, "alpha": 1.5, "nbest": 2, "min_length": 3, "unknown": True, "sample": True, "temperature": 2.0,
    "top_k": 4, "top_p": 0.5, "seed": 6, "batch_tokens": 7, "read_ahead": 8, "max_source_length": 9,
    "max_length_offset": 10, "max_length": 11, "no_repeat_ngram": 12, "replace_unknown": True, "constrained": True,
    "split_sentences": True, "sentence_language": "fr",
}  # fmt: skip
NEEDED = {"sentence_language": "split_sentences", "temperature": "sample", "top_k": "sample", "top_p": "sample"}
NEEDED |= {"seed": "sample"}
"""The option that must be true for another one."""


@pytest.mark.parametrize(
    "function", [nmt_cli.load, nmt_cli.Translator.translate, nmt_cli.Translator.translate_detailed]
)
def test_every_option_is_a_keyword(function: Callable[..., Any]) -> None:
    parts = (TranslateOptions, SearchOptions, SamplingOptions)
    fields = {name for part in parts for name in part.__dataclass_fields__} - {"search", "sampling"}
    keywords = inspect.signature(function, eval_str=True).parameters
    assert fields - {"early_termination"} == OPTIONS.keys() <= keywords.keys()
    for name, value in OPTIONS.items():
        assert keywords[name].default is None
        assert keywords[name].annotation == type(value) | None


@pytest.mark.parametrize("name", OPTIONS)
def test_every_keyword_reaches_the_options(
    translator: nmt_cli.Translator, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each is seen where it is used, and is the only one that differs."""
    given: dict[str, Any] = {NEEDED.get(name, name): True, name: OPTIONS[name]}
    seen: list[Any] = []
    monkeypatch.setattr(nmt_cli.Translator, "__post_init__", lambda self: seen.append(self.options))
    nmt_cli.load(tiny_checkpoint, device="cpu", **given)
    translator = replace(translator, options=TranslateOptions())
    seen.pop()
    translator.translate([], **given)
    translator.translate_detailed([], **given)
    assert len(seen) == 3
    for options in seen:
        flat = {**vars(options), **vars(options.search), **vars(options.sampling)}
        default = {**vars(TranslateOptions()), **vars(SearchOptions()), **vars(SamplingOptions())}
        changed = {key: flat[key] for key in flat.keys() - {"search", "sampling"} if flat[key] != default[key]}
        assert changed == given


def test_a_translator_is_shown_in_short(translator: nmt_cli.Translator) -> None:
    assert len(repr(translator)) < 1000
    assert "beam=" in repr(translator)


def test_threads_may_share_a_translator(translator: nmt_cli.Translator) -> None:
    expected = {beam: translator.translate(LINES * 4, beam=beam) for beam in (1, 2, 4)}
    results: list[bool] = []

    def work(beam: int) -> None:
        results.extend(translator.translate(LINES * 4, beam=beam) == expected[beam] for _ in range(5))

    threads = [threading.Thread(target=work, args=(beam,)) for beam in (1, 2, 4, 1, 2, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 30


def test_score() -> None:
    (bleu,) = nmt_cli.score(["the cat sat on the mat"], ["the cat sat on the mat"], metrics=["bleu"])
    assert bleu.score == pytest.approx(100)
    assert "tok:13a" in bleu.signature
    assert nmt_cli.score(iter(["a b c d"]), iter(["a b c d"]), metrics=iter(["bleu"]))[0].score == pytest.approx(100)
    for arguments in ((["a"], ["a"], "bleu"), ("a", ["a"]), (["a"], "a")):
        with pytest.raises(UsageError, match="must be a list of strings"):
            nmt_cli.score(*arguments)


def test_the_package_alone_imports_no_torch() -> None:
    code = "import sys, nmt_cli; assert 'torch' not in sys.modules; nmt_cli.load; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
