from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import nmt_cli
from nmt_cli.errors import UsageError

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
    for hypotheses, references in (([None], ["a"]), (None, ["a"]), (["a"], ["a", None]), (["a"], "a")):
        with pytest.raises(UsageError, match="list of strings"):
            nmt_cli.score(hypotheses, references)  # type: ignore[arg-type]


def test_the_package_alone_imports_no_torch() -> None:
    code = "import sys, nmt_cli; assert 'torch' not in sys.modules; nmt_cli.load; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
