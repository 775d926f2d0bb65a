"""CTranslate2's search: the options mean what they mean in beam search."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ctranslate2
import pytest
import torch

import nmt_cli
from nmt_cli.annexes.exchange.ctranslate2.engine import CTranslate2Engine
from nmt_cli.annexes.search.scoring import token_log_probabilities
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.length_penalty import length_penalty
from nmt_cli.decoding.loading import load_translator
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import NmtError, UsageError
from nmt_cli.interfaces import SPECIAL_SYMBOLS

CPU = torch.device("cpu")
LINES = ["abcdefgh" * 3, "hgf", "a", "bad cab"]


def load(export: Path, **options: Any) -> Translator:
    return nmt_cli.load(export, device="cpu", engine="ctranslate2", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"max_length": 4, "max_source_length": 5},
        {"max_length_offset": 0},
        {"no_repeat_ngram": 2},
        {"batch_tokens": 8, "read_ahead": 2},
    ],
    ids=str,
)
def test_options_of_the_search(
    tiny_export: Path, tiny_checkpoint: Path, options: dict[str, Any]
) -> None:
    plain = nmt_cli.load(tiny_checkpoint, device="cpu", beam=1).translate(LINES)
    our_outputs = nmt_cli.load(tiny_checkpoint, device="cpu", beam=1, **options).translate_window(
        LINES
    )
    their_outputs = load(tiny_export, beam=1, **options).translate_window(LINES)
    assert [translation.text for translation in their_outputs] == [
        translation.text for translation in our_outputs
    ]
    for mine, other in zip(our_outputs, their_outputs, strict=True):
        assert other.outputs[0].token_scores == pytest.approx(
            mine.outputs[0].token_scores, abs=1e-4
        )
        assert other.truncated == mine.truncated
    assert "batch_tokens" in options or [translation.text for translation in our_outputs] != plain


def test_the_minimum_length(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint", seed=3, ends=True)
    for minimum in (0, 2):
        options = {"beam": 1, "min_length": minimum, "max_length": 6}
        their_lengths, our_lengths = (
            [
                t.outputs[0]
                for t in nmt_cli.load(
                    folder, device="cpu", engine=engine, **options
                ).translate_window(LINES)
            ]
            for engine in ("ctranslate2", "nmt")
        )
        assert [list(output.ids) for output in their_lengths] == [
            list(output.ids) for output in our_lengths
        ]
        assert (min(len(output.ids) for output in our_lengths) == 0) == (minimum == 0)
        for one, other in zip(their_lengths, our_lengths, strict=True):
            assert one.token_scores == pytest.approx(other.token_scores, abs=1e-4)
            assert one.score == pytest.approx(other.score, abs=1e-4)


def test_the_unknown_word_and_the_special_symbols_are_not_outputs(tiny_export: Path) -> None:
    translator = load(tiny_export, beam=4, nbest=4)
    outputs = [
        output
        for translation in translator.translate_window(LINES)
        for output in translation.outputs
    ]
    assert min(id for output in outputs for id in output.ids) > 3
    assert isinstance(translator.engine, CTranslate2Engine)
    allowing = SearchSettings(beam=12, nbest=12, unknown=True)
    ((row_of_line,),) = translator.engine.search([[Request([5], 1)]], allowing, TranslateOptions())
    assert 1 in {id for hypothesis in row_of_line for id in hypothesis.tokens}


def test_scores_are_those_of_the_model_divided_by_the_length_penalty_of_the_paper(
    tiny_export: Path, tiny_checkpoint: Path
) -> None:
    translator = nmt_cli.load(tiny_checkpoint, device="cpu")
    for translation in load(tiny_export, beam=4, nbest=3, alpha=0.8).translate_window(LINES):
        assert len(translation.outputs) == len({output.text for output in translation.outputs}) <= 3
        order = []
        for output in translation.outputs:
            ids = (translator.task.encode_source(translation.source.strip()), list(output.ids))
            (expected,) = token_log_probabilities(
                translator.engine.models, *([ids_of_line] for ids_of_line in ids), CPU, 4096
            )
            count = len(output.token_scores)
            assert output.token_scores == pytest.approx(expected[:count], abs=1e-4)
            penalty = length_penalty(torch.tensor(float(count)), 0.8).item()
            assert output.score == pytest.approx(math.fsum(expected[:count]) / penalty, abs=1e-4)
            # Outputs that were cut come last.
            order.append((count == len(output.ids), -output.score))
        assert order == sorted(order)


def test_an_output_may_end_at_its_limit_and_is_cut_after_it() -> None:
    asked: list[int] = []

    class Finished:
        def result(self) -> Any:
            hypotheses = [["a", "b", "</s>"], ["a", "b", "c", "</s>"], ["b", "a", "c"]]
            return SimpleNamespace(hypotheses=hypotheses, scores=[-1.0, -0.9, -0.8])

    class Recorded:
        num_translators = 1

        def translate_batch(
            self, sources: list[list[str]], *, max_decoding_length: int, **_: Any
        ) -> list[Finished]:
            asked.append(max_decoding_length)
            return [Finished() for _ in sources]

    tokens = [*SPECIAL_SYMBOLS, "a", "b", "c"]
    engine = CTranslate2Engine(None, Recorded(), tokens, tokens, CPU, scores=False)  # type: ignore[arg-type]
    search = SearchSettings(beam=3, nbest=3, alpha=0.0)
    (rows,) = engine.search([[Request([4], 2), Request([4, 4], 3)]], search, TranslateOptions())
    assert asked == [4]  # and the end of the sentence
    assert [[hypothesis.tokens for hypothesis in row] for row in rows] == [
        [[4, 5], [5, 4]],
        [[4, 5, 6], [4, 5], [5, 4, 6]],
    ]


def test_too_long_sources_are_refused(tiny_export: Path) -> None:
    with pytest.raises(UsageError, match="--max-source-length 2048"):
        load(tiny_export, max_source_length=2048)
    with pytest.raises(UsageError, match="--exact-stopping"):
        load(tiny_export, exact_stopping=True)


def test_the_type_of_arithmetic_and_the_threads_reach_it(tiny_export: Path) -> None:
    translator = load_translator(
        [tiny_export], device="cpu", dtype="int8", engine="ctranslate2", workers=3
    )
    assert isinstance(translator.engine, CTranslate2Engine)
    assert translator.engine.translator.compute_type.startswith("int8")
    assert translator.engine.translator.num_translators == 3
    exact = nmt_cli.load(tiny_export, device="cpu", engine="ctranslate2")
    assert isinstance(exact.engine, CTranslate2Engine)
    assert exact.engine.translator.compute_type == "float32"


def test_a_type_of_arithmetic_that_the_cpu_lacks_is_refused(
    tiny_export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: Any, compute_type: str, **__: Any) -> None:
        raise ValueError(f"Requested {compute_type} compute type")

    monkeypatch.setattr(ctranslate2, "Translator", refusing)
    with pytest.raises(UsageError, match="--dtype bfloat16: CTranslate2"):
        nmt_cli.load(tiny_export, device="cpu", dtype="bfloat16", engine="ctranslate2")


def test_a_damaged_export_is_named(tiny_export: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_export, tmp_path / "export")
    (copy / "model.bin").write_bytes(b"")
    with pytest.raises(NmtError, match=rf"{copy}: CTranslate2 cannot load this model"):
        load(copy)


def test_many_batches_keep_their_order(tiny_export: Path) -> None:
    lines = ["abcdefgh"[: 1 + i * 5 % 8] for i in range(40)]
    translator = load_translator(
        [tiny_export], TranslateOptions(max_length=4), device="cpu", engine="ctranslate2", workers=2
    )
    alone = {line: translator.translate([line])[0] for line in set(lines)}
    assert translator.translate(lines, batch_tokens=12) == [alone[line] for line in lines]
