"""Exported Transformers compute, tokenise and translate in Hugging Face Transformers as here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from nmt_cli.annexes.exchange.marian import writing
from nmt_cli.data.batching import collate
from nmt_cli.decoding.own_engine import OwnEngine
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import CheckpointError, UsageError
from nmt_cli.interfaces import EOS, PAD

Build = Callable[..., tuple[Any, Any]]
Text = list[tuple[str, str]]

CPU = torch.device("cpu")
VARIANTS = {
    "paper": ({}, {}),
    "separate": ({"separate_vocabularies": True}, {"activation": "gelu"}),
    "biases": (
        {"byte_fallback": True, "vocab_size": 330},
        {
            "attention_biases": True,
            "output_bias": True,
            "activation": "swish",
            "num_decoder_layers": 1,
        },
    ),
}


@pytest.fixture(scope="module", params=VARIANTS)
def exported(
    request: pytest.FixtureRequest,
    build: Build,
    taught: Callable[..., None],
    text: Text,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Any, Any, Path]:
    """A model, its task, and the folder of the export."""
    task, fields = VARIANTS[request.param]
    model, our_task = build(task, **fields)
    sources = [np.array(our_task.encode_source(source)) for source, _ in text[:8]]
    targets = [np.array(our_task.encode_target(target)) for _, target in text[:8]]
    batch = collate(sources, targets)
    expected = batch.target_out.flatten()
    logits = partial(model, batch.source, batch.target_in)
    taught(model, lambda: F.cross_entropy(logits().flatten(0, 1), expected, ignore_index=PAD))
    folder = tmp_path_factory.mktemp(request.param)
    report = writing.export(model, our_task, [source for source, _ in text[:3]], folder)
    assert (folder / "target_vocab.json").exists() is not our_task.shared_vocabulary
    assert report[0::2] == ["ids: those of 3 lines are equal", "greedy outputs: 3 of 3 equal"]
    return model, our_task, folder


def test_the_tokenizer_gives_the_same_ids(
    exported: tuple[Any, Any, Path], odd_lines: list[str]
) -> None:
    _, task, folder = exported
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer(odd_lines)["input_ids"] == [
        [*task.encode_source(line), EOS] for line in odd_lines
    ]
    assert tokenizer(text_target=odd_lines)["input_ids"] == [
        [*task.encode_target(line), EOS] for line in odd_lines
    ]


def test_translations_are_the_same(exported: tuple[Any, Any, Path], text: Text) -> None:
    """Without a length penalty, whose formula is another one there. They search on, too."""
    model, task, folder = exported
    lines = [source for source, _ in text[:20]]
    translator = Translator(OwnEngine(task, model.decodable("float32"), CPU, [model]))
    options = {"beam": 4, "alpha": 0.0, "max_length_offset": 98, "exact_stopping": True}
    our_outputs = translator.translate(lines, **options)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    their_model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    batch = tokenizer(lines, padding=True, return_tensors="pt")
    generated = their_model.generate(**batch, num_beams=4, length_penalty=0.0, max_length=98)
    ended = (generated[:, :-1] == EOS).any(1).nonzero().flatten().tolist()
    assert len({our_outputs[i] for i in ended}) > 1
    expected = tokenizer.batch_decode(generated, skip_special_tokens=True)
    assert [our_outputs[i].strip() for i in ended] == [expected[i] for i in ended]


@pytest.mark.parametrize(
    ("subwords", "normalization"),
    [("unigram", "nmt_nfkc"), ("character", "nfkc"), ("character", "none")],
)
def test_other_sentencepiece_vocabularies(
    build: Build,
    text: Text,
    odd_lines: list[str],
    tmp_path: Path,
    subwords: str,
    normalization: str,
) -> None:
    model, task = build({"subwords": subwords, "vocab_size": 60, "normalization": normalization})
    writing.export(model, task, [text[0][0]], tmp_path)
    ids = AutoTokenizer.from_pretrained(tmp_path)(odd_lines)["input_ids"]
    assert ids == [[*task.encode_source(line), EOS] for line in odd_lines]


@pytest.mark.parametrize(
    ("task", "fields", "refused"),
    [
        ({"moses": True}, {}, "--moses"),
        ({"lowercase": True}, {}, "--lowercase"),
        ({"normalization": "nfc"}, {}, "--normalization nfc"),
        ({"normalization": "nfd"}, {}, "--normalization nfd"),
        ({"subwords": "none"}, {}, "--subwords none"),
        ({"subwords": "wordpiece"}, {}, "--subwords wordpiece"),
        ({}, {"attention": "restricted"}, "--attention restricted"),
        ({}, {"norm": "pre"}, "--norm pre"),
        ({}, {"positions": "learned"}, "--positions learned"),
        ({}, {"gated_feed_forward": True}, "--gated-feed-forward"),
        ({}, {"query_key_norm": True}, "--query-key-norm"),
        ({}, {"activation": "squared_relu"}, "--activation squared_relu"),
        ({}, {"d_model": 13, "d_k": 6, "d_v": 6}, "--d-k or --d-v"),
    ],
)
def test_what_marian_does_not_have_is_refused_by_name(
    build: Build, tmp_path: Path, task: dict[str, Any], fields: dict[str, Any], refused: str
) -> None:
    model, our_task = build(task, **fields)
    with pytest.raises(UsageError, match=f"^a Marian.* has no {refused}"):
        writing.export(model, our_task, [], tmp_path)


def test_other_models_are_refused(build: Build, tmp_path: Path) -> None:
    _, task = build()
    with pytest.raises(UsageError, match="no model like this one, a Linear"):
        writing.export(torch.nn.Linear(2, 2), task, [], tmp_path)
    with pytest.raises(UsageError, match=r"--quantization .*--to ctranslate2"):
        writing.export(*build(), [], tmp_path, "int8")


def broken_weights(model: Any, whole: Any = writing.marian_weights) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = whole(model)
    weights["model.decoder.layers.1.fc1.weight"] += 1e-2
    return weights


def broken_tokenizer(task: Any, whole: Any = writing.tokenizer_config) -> dict[str, Any]:
    return {**whole(task), "eos_token": "<unk>"}


def rule_of_1_0(model: bytes, config: Any, whole: Any = writing._with_rule) -> bytes:
    content: bytes = whole(model, replace(config, normalization_version=1))
    return content


def broken_start(whole: Any = writing.generation_config) -> dict[str, Any]:
    return {**whole(), "forced_bos_token_id": 7}


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        ("marian_weights", broken_weights, "computes other log-probabilities"),
        ("_with_rule", rule_of_1_0, "has other ids"),
        ("tokenizer_config", broken_tokenizer, "has other ids"),
        ("generation_config", broken_start, "translates a sentence differently"),
    ],
)
def test_an_export_that_differs_is_an_error(
    build: Build,
    text: Text,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    broken: Any,
    message: str,
) -> None:
    monkeypatch.setattr(writing, name, broken)
    with pytest.raises(CheckpointError, match=rf"^transformers [\d.]+ {message}"):
        writing.export(*build(), [source for source, _ in text[:5]], tmp_path)
