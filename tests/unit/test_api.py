from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import nmt_cli
from nmt_cli.errors import UsageError

LINES = ["abc", "hgfedcba", "", "a", "bad"]


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> nmt_cli.Translator:
    return nmt_cli.load(tiny_checkpoint, device="cpu", max_length_offset=5)


def test_translate_gives_one_string_a_line(translator: nmt_cli.Translator) -> None:
    texts = translator.translate(LINES)
    assert [bool(text) for text in texts] == [True, True, False, True, True]
    assert texts == [translator.translate([line])[0] for line in LINES]


def test_options_are_those_of_the_load_unless_the_call_says_otherwise(
    translator: nmt_cli.Translator, tiny_checkpoint: Path
) -> None:
    default, narrow = translator.translate(LINES), translator.translate(LINES, beam=1, max_length_offset=1)
    assert [len(text) for text in default] != [len(text) for text in narrow]
    other = nmt_cli.load(str(tiny_checkpoint), device="cpu", beam=1, max_length_offset=1)
    assert other.translate(LINES) == narrow
    assert translator.translate(LINES) == default


def test_details(translator: nmt_cli.Translator) -> None:
    first, *_ = translator.translate_detailed(LINES, nbest=3)
    assert first.source == "abc"
    assert len(first.outputs) == 3
    assert first.outputs[0].score >= first.outputs[-1].score


def test_it_streams(translator: nmt_cli.Translator) -> None:
    lines = iter(["abc"] * 10)
    results = translator.translate_detailed(lines, read_ahead=2)
    next(results)
    assert len(list(lines)) == 8


def test_several_checkpoints_are_an_ensemble(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    paths = [make_checkpoint(tmp_path / str(seed), seed=seed) for seed in (1, 2)]
    together = next(nmt_cli.load(paths, device="cpu").translate_detailed(["abc"]))
    alone = [next(nmt_cli.load(path, device="cpu").translate_detailed(["abc"])) for path in paths]
    assert together.outputs[0].score not in [one.outputs[0].score for one in alone]


def test_threads_get_what_one_gets(translator: nmt_cli.Translator) -> None:
    expected = {beam: translator.translate(LINES * 4, beam=beam) for beam in (1, 2, 4)}
    wrong: list[int] = []
    done: list[int] = []

    def work(beam: int) -> None:
        for _ in range(5):
            if translator.translate(LINES * 4, beam=beam) != expected[beam]:
                wrong.append(beam)
        done.append(beam)

    threads = [threading.Thread(target=work, args=(beam,)) for beam in (1, 2, 4, 1, 2, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 6
    assert wrong == []


def test_mistakes_are_named(translator: nmt_cli.Translator, tiny_checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="beem"):
        translator.translate(["a"], beem=4)
    with pytest.raises(UsageError, match="single string"):
        translator.translate("a line")
    with pytest.raises(UsageError, match="beam"):
        nmt_cli.load(tiny_checkpoint, beam=0)


def test_score() -> None:
    (bleu,) = nmt_cli.score(["the cat sat on the mat"], ["the cat sat on the mat"], metrics=["sacrebleu-13a"])
    assert bleu.score == pytest.approx(100)
    assert "tok:13a" in bleu.signature


def test_the_package_alone_imports_no_torch() -> None:
    code = "import sys, nmt_cli; assert 'torch' not in sys.modules; nmt_cli.load; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
