"""The data, the safety and the command of the attention page; tests/integration opens it in a browser."""

from __future__ import annotations

import base64
import json
import math
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nmt_cli.decoding.attention_page import KINDS, MAX_SENTENCES, AttentionPage, embedded, packed, readable

import nmt_cli
from nmt_cli.cli import main
from nmt_cli.commands.translate import translate
from nmt_cli.commands.translate_options import TranslateCommandOptions
from nmt_cli.decoding import attention_page
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import BOS, EOS, UNK

CHOICES = {"beam": 2, "max_length_offset": 3}


class Scripts(HTMLParser):
    """The elements and scripts that a browser finds in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] += data


def parsed(content: bytes) -> Scripts:
    parser = Scripts()
    parser.feed(content.decode())
    parser.close()
    return parser


def data_of(content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(parsed(content).scripts[0])
    return found


def unpacked(text: str) -> torch.Tensor:
    roots = torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text))), dtype=torch.uint8)
    return (roots / 255) ** 2


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> Translator:
    return nmt_cli.load(tiny_checkpoint, device="cpu", **CHOICES)


@pytest.fixture
def settings(tiny_checkpoint: Path, tmp_path: Path) -> TranslateCommandOptions:
    (tmp_path / "in").write_text("abc\n\nhg\n")
    page = tmp_path / "page.html"
    return TranslateCommandOptions(
        checkpoints=(tiny_checkpoint,),
        input=tmp_path / "in",
        output=tmp_path / "out",
        device="cpu",
        translation=TranslateOptions().replaced(CHOICES),
        attention=page,
    )


def page_of(translator: Translator, lines: list[str], warn: Callable[[str], None] = pytest.fail) -> AttentionPage:
    page = AttentionPage(translator, "model", warn)
    for number, translation in enumerate(translator.translate_window(lines), start=1):
        page.add(translation, f"in:{number}")
    return page


@pytest.mark.parametrize(
    ("ids", "pieces", "expected"),
    [
        (
            [9, 8, 7, 6, UNK, 5, EOS],
            ["▁snow", "mob", ".", "▁", "<unk>", "▁a", "</s>"],
            "snow/word mob/part ./part ␣/word unknown/mark a/word end/mark",
        ),
        ([BOS, 9, 8, 7, 6], ["<s>", "snow@@", "mob@@", "ile", "@@"], "start/mark snow/word mob/part ile/part @@/word"),
        ([9, 8, 7], ["<s>", "</s>", "(S"], "<s>/word </s>/word (S/word"),
        ([9, 8, 7], ["\u200b", "\u00a0", "a\u200bb"], "U+200B/word U+00A0/word a\u200bb/word"),
    ],
    ids=["sentencepiece", "subword-nmt", "words like special symbols", "invisible"],
)
def test_readable_tokens(ids: list[int], pieces: list[str], expected: str) -> None:
    assert " ".join(f"{token.text}/{token.kind}" for token in readable(ids, pieces)) == expected


@given(st.text() | st.sampled_from(["</script>", "<!--<script>", "]]>", "\u2028", "\ud800"]))
def test_any_text_survives_and_begins_no_tag(text: str) -> None:
    written = embedded({"text": [text]})
    assert "<" not in written
    assert json.loads(written) == {"text": [text]}


def test_weights_are_kept_within_half_a_step_of_their_roots() -> None:
    weights = torch.rand(2, 3, 4, 5) ** 6
    more = torch.tensor([[0.0, 1.0, 0.25]], dtype=torch.bfloat16)
    got = unpacked(packed([weights, more]))
    torch.testing.assert_close(got[:120].view_as(weights).sqrt(), weights.sqrt(), atol=0.5 / 255 + 1e-6, rtol=0)
    assert got[120:].tolist() == pytest.approx([0, 1, 0.25], abs=0.004)


def test_the_page_holds_what_the_model_looks_at(translator: Translator) -> None:
    page = page_of(translator, ["abc", " ", "hg"])
    data = data_of(page.html())
    assert [sentence["source"] for sentence in data["sentences"]] == ["abc", "hg"]
    sentence = data["sentences"][0]
    (translation,) = translator.translate_window(["abc"])
    output = translation.outputs[0]
    assert sentence["target"] == output.text
    ended = len(output.token_scores) > len(output.ids)
    written = [*output.ids, EOS] if ended else list(output.ids)
    source = [*translator.task.encode_source("abc"), EOS]
    model: Any = translator.engine.models[0]
    expected = model.attention_weights(torch.tensor([source]), torch.tensor([[BOS, *written[:-1]]]))
    assert sentence["shapes"] == {kind: list(expected[kind].shape) for kind in KINDS}
    flat = torch.cat([expected[kind].flatten() for kind in KINDS])
    torch.testing.assert_close(unpacked(sentence["weights"]), flat, atol=0.005, rtol=0)
    assert len(sentence["tokens"]["source"]) == len(source)
    assert len(sentence["tokens"]["read"]) == len(sentence["tokens"]["written"]) == len(written)
    assert sentence["tokens"]["read"][0] == ["start", "mark"]
    assert sentence["tokens"]["read"][1:] == sentence["tokens"]["written"][:-1]
    assert (sentence["tokens"]["written"][-1] == ["end", "mark"]) == ended


def test_kinds_of_attention_that_the_model_has_not_are_left_out(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = translator.engine.models[0]
    every = model.attention_weights
    monkeypatch.setattr(model, "attention_weights", lambda *ids: {"cross": every(*ids)["cross"]})
    (sentence,) = data_of(page_of(translator, ["abc"]).html())["sentences"]
    assert list(sentence["shapes"]) == ["cross"]
    assert unpacked(sentence["weights"]).numel() == math.prod(sentence["shapes"]["cross"])


def test_an_output_that_was_cut_has_no_end(translator: Translator) -> None:
    cut = replace(translator, options=replace(translator.options, max_length_offset=0))
    (translation,) = cut.translate_window(["abcdefgh"])
    output = translation.outputs[0]
    assert len(output.token_scores) == len(output.ids)
    tokens = data_of(page_of(cut, ["abcdefgh"]).html())["sentences"][0]["tokens"]
    assert tokens["written"][-1] != ["end", "mark"]
    assert len(tokens["read"]) == len(output.ids)


def test_the_page_loads_nothing(translator: Translator) -> None:
    content = page_of(translator, ["abc"]).html()
    page = parsed(content)
    addresses = [v for _, given in page.elements for k, v in given.items() if k in ("src", "href", "srcset", "data")]
    assert addresses == ["data:,"]
    policy = next(given["content"] for _, given in page.elements if given.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert b"://" not in content
    assert b"@import" not in content


def test_text_that_looks_like_a_page_stays_text(translator: Translator) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)> {{data}}"
    page = page_of(translator, [evil])
    usual = parsed(page_of(translator, ["abc"]).html())
    got = parsed(page.html())
    assert got.elements == usual.elements
    assert data_of(page.html())["sentences"][0]["source"] == evil


def test_sentences_beyond_the_most_are_counted(translator: Translator) -> None:
    warnings: list[str] = []
    page = page_of(translator, ["a"] * (MAX_SENTENCES + 3), warnings.append)
    assert warnings == []
    data = data_of(page.html())
    assert len(page) == len(data["sentences"]) == MAX_SENTENCES
    assert data["left_out"] == 3
    assert len(warnings) == 1
    assert str(MAX_SENTENCES + 3) in warnings[0]


def test_a_sentence_that_is_too_long_is_named(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_page, "MAX_TOKENS", 9)
    warnings: list[str] = []
    short = replace(translator, options=replace(translator.options, max_length_offset=0))
    page = page_of(short, ["abc", "abcdefgh", "abcdefg"], warnings.append)
    assert [sentence["source"] for sentence in data_of(page.html())["sentences"]] == ["abc", "abcdefg"]
    assert [warning.split(": ")[0] for warning in warnings] == ["in:2"]


def test_a_model_without_attention_weights_is_refused(translator: Translator, toy: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"runs/a.* Toy.*attention_weights"):
        AttentionPage(replace(translator, engine=replace(translator.engine, models=[toy(12, seed=1)])), "runs/a", print)


def test_the_command_writes_the_page_besides_the_translations(
    settings: TranslateCommandOptions, capfd: pytest.CaptureFixture[str]
) -> None:
    assert settings.attention is not None
    assert settings.output is not None
    translate(replace(settings, attention=None))
    usual = settings.output.read_bytes()
    settings.attention.write_text("an older page")
    capfd.readouterr()
    translate(settings)
    assert settings.output.read_bytes() == usual
    data = data_of(settings.attention.read_bytes())
    assert (len(data["sentences"]), data["model"]) == (2, str(settings.checkpoints[0]))
    captured = capfd.readouterr()
    assert captured.out == ""
    assert str(settings.attention) in captured.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"interactive": True, "input": None, "output": None}, "--interactive"),
        ({"double": True}, "one checkpoint"),
        ({"attention": "in"}, "--attention .*in"),
        ({"attention": "out"}, "--output"),
    ],
)
def test_wrong_flags_are_refused_before_anything_is_written(
    settings: TranslateCommandOptions,
    changes: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    if changes.pop("double", False):
        changes["checkpoints"] = settings.checkpoints * 2
    if "attention" in changes:
        changes["attention"] = tmp_path / changes["attention"]
    with pytest.raises(UsageError, match=message):
        translate(replace(settings, **changes))
    assert (tmp_path / "in").read_text() == "abc\n\nhg\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(("page", "code"), [("/dev/full", 1), ("no/such/directory/a.html", 2)])
def test_a_page_that_cannot_be_written_is_named(
    settings: TranslateCommandOptions, page: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["translate", str(settings.checkpoints[0]), "--input", str(settings.input), "--attention", page])
    assert end.value.code == code
    assert f"{page}: " in capfd.readouterr().err
