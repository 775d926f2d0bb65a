"""Exports are checked against CTranslate2 itself, through translators that load them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import pytest

import nmt_cli
from nmt_cli.annexes.exchange.ctranslate2 import writing as converter
from nmt_cli.annexes.exchange.export.writing import write_export
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.weights import load_model

LINES = ["abcdefgh" * 3, "hgf", "", "a", "bad cab", "xyz"]

MODELS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "pre-norm": {
        "model": {"norm": "pre", "activation": "gelu", "num_layers": 2, "num_decoder_layers": 1}
    },
    "learned positions, shorter than the lines": {
        "model": {"positions": "learned", "max_positions": 6}
    },
    "SwiGLU": {"model": {"positions": "none", "activation": "swish", "gated_feed_forward": True}},
    "biases": {"model": {"attention_biases": True, "output_bias": True}, "separate": True},
    "an odd width": {"model": {"d_model": 15, "num_heads": 3}},
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_both_programs_find_the_same(
    make_checkpoint: Callable[..., Path], tmp_path: Path, model: dict[str, Any]
) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint", noise=0.3, **model)
    write_export(folder, "ctranslate2", tmp_path / "export")
    their_outputs, our_outputs = (
        [
            translation.outputs[0]
            for translation in nmt_cli.load(
                tmp_path / name, device="cpu", engine=engine, beam=1
            ).translate_window(LINES)
        ]
        for engine, name in (("ctranslate2", "export"), ("nmt", "checkpoint"))
    )
    for output, expected in zip(their_outputs, our_outputs, strict=True):
        assert list(output.ids) == list(expected.ids)
        assert output.token_scores == pytest.approx(expected.token_scores, abs=1e-4)
        assert output.score == pytest.approx(expected.score, abs=1e-4)
    assert len({output.text for output in our_outputs}) > 1


def test_the_export_is_a_model_that_ctranslate2_loads_without_nmt(
    tiny_export: Path, tiny_checkpoint: Path
) -> None:
    assert {path.name for path in tiny_export.iterdir()} == {
        *("config.json", "model.bin", "shared_vocabulary.json"),
        *("task", "export.json"),
    }
    config = json.loads((tiny_export / "config.json").read_text())
    expected = {
        "add_source_eos": True,
        "add_source_bos": False,
        "decoder_start_token": "<s>",
        "unk_token": "<unk>",
    }
    assert {name: config[name] for name in expected} == expected
    translator = ctranslate2.Translator(str(tiny_export))
    never = [["<s>"], ["<pad>"], ["<unk>"]]  # a trained model does not want them
    (result,) = translator.translate_batch(
        [["▁", "a", "b"]], beam_size=1, max_decoding_length=5, suppress_sequences=never
    )
    our_outputs = nmt_cli.load(
        tiny_checkpoint, device="cpu", beam=1, max_length=5
    ).translate_window(["ab"])
    assert result.hypotheses[0] == our_outputs[0].outputs[0].tokens


@pytest.mark.parametrize(
    ("model", "attention", "reason"),
    [
        ({"d_k": 5}, "full", "--d-k"),
        ({}, "restricted", "restricted"),
        ({"query_key_norm": True}, "full", "--query-key-norm"),
        ({"activation": "squared_relu"}, "full", "--activation squared_relu"),
    ],
)
def test_what_it_cannot_express_is_named(
    make_checkpoint: Callable[..., Path],
    tmp_path: Path,
    model: dict[str, Any],
    attention: str,
    reason: str,
) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint", model=model, attention=attention)
    with pytest.raises(UsageError, match=f"CTranslate2.*{reason}"):
        write_export(folder, "ctranslate2", tmp_path / "export")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_token_that_is_twice_in_the_vocabulary_is_named(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, task = load_model(tiny_checkpoint)
    monkeypatch.setattr(task, "target_tokens", lambda ids: ["a" for _ in ids])
    with pytest.raises(UsageError, match="target vocabulary has 'a' twice"):
        converter.tokens_of(task)


@pytest.mark.parametrize("part", ["linear_0.bias", "layer_norm.gamma"])
def test_an_export_that_computes_something_else_is_refused(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    correct = converter.converted

    def wrong(model: Any) -> Any:
        spec = correct(model)
        layer, array = part.split(".")
        target = getattr(spec.decoder.layer[0].ffn, layer)
        setattr(target, array, getattr(target, array) + 0.01)
        return spec

    monkeypatch.setattr(converter, "converted", wrong)
    with pytest.raises(CheckpointError, match=r"log-probabilities.*Nothing was exported"):
        write_export(tiny_checkpoint, "ctranslate2", tmp_path / "export")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("quantization", ["bfloat16", "int8"])
def test_smaller_weights(
    tiny_checkpoint: Path, tiny_export: Path, tmp_path: Path, quantization: str
) -> None:
    said: list[str] = []
    out = tmp_path / "export"
    write_export(tiny_checkpoint, "ctranslate2", out, quantization=quantization, say=said.append)
    assert re.search(rf"weights in {quantization}: \d+ of 32 equal", said[-1])
    assert (out / "model.bin").stat().st_size < (tiny_export / "model.bin").stat().st_size
    assert nmt_cli.load(out, device="cpu", engine="ctranslate2", beam=1).translate(["abc"]) != [""]
