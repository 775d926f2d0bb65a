"""The data, the safety and the command of the attention page.

Tests/integration opens it in a browser.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import nmt_cli
from nmt_cli.annexes.report import attention
from nmt_cli.annexes.report.attention import KINDS, compressed, sentences_of, shown_tokens
from nmt_cli.annexes.report.page import embedded, page
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import BOS, EOS, UNK


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
    data: dict[str, Any] = json.loads(parsed(content).scripts[0])
    return data


def unpacked(text: str) -> torch.Tensor:
    roots = torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text))), dtype=torch.uint8)
    return (roots / 255) ** 2


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> Translator:
    return nmt_cli.load(tiny_checkpoint, device="cpu", beam=2, max_length_offset=3)


def page_of(
    translator: Translator, lines: list[str], warn: Callable[[str], None] = pytest.fail
) -> bytes:
    with patch.object(attention, "warn", warn):
        sentences = sentences_of(translator, {f"in:{n}": line for n, line in enumerate(lines, 1)})
    return page("Attention", "model", ["attention"], {"sentences": sentences})


@pytest.mark.parametrize(
    ("ids", "pieces", "expected"),
    [
        (
            [9, 8, 7, 6, UNK, 5, EOS],
            ["▁snow", "mob", ".", "▁", "<unk>", "▁a", "</s>"],
            "snow/word mob/part ./part ␣/word unknown/mark a/word end/mark",
        ),
        (
            [BOS, 9, 8, 7, 6],
            ["<s>", "snow@@", "mob@@", "ile", "@@"],
            "start/mark snow/word mob/part ile/part @@/word",
        ),
        ([9, 8, 7], ["<s>", "</s>", "(S"], "<s>/word </s>/word (S/word"),
        ([9, 8, 7], ["\u200b", "\u00a0", "a\u200bb"], "U+200B/word U+00A0/word a\u200bb/word"),
    ],
    ids=["sentencepiece", "subword-nmt", "words like special symbols", "invisible"],
)
def test_readable_tokens(ids: list[int], pieces: list[str], expected: str) -> None:
    assert " ".join(f"{token.text}/{token.kind}" for token in shown_tokens(ids, pieces)) == expected


@given(st.text() | st.sampled_from(["</script>", "<!--<script>", "]]>", "\u2028", "\ud800"]))
def test_any_text_survives_and_begins_no_tag(text: str) -> None:
    written = embedded({"text": [text]})
    assert "<" not in written
    assert json.loads(written) == {"text": [text]}


def test_weights_are_kept_within_half_a_step_of_their_roots() -> None:
    weights = torch.rand(2, 3, 4, 5) ** 6
    more = torch.tensor([[0.0, 1.0, 0.25]], dtype=torch.bfloat16)
    got = unpacked(compressed([weights, more]))
    torch.testing.assert_close(
        got[:120].view_as(weights).sqrt(), weights.sqrt(), atol=0.5 / 255 + 1e-6, rtol=0
    )
    assert got[120:].tolist() == pytest.approx([0, 1, 0.25], abs=0.004)


def test_the_page_holds_what_the_model_looks_at(translator: Translator) -> None:
    data = data_of(page_of(translator, ["abc", "hg"]))
    assert [sentence["source"] for sentence in data["sentences"]] == ["abc", "hg"]
    sentence = data["sentences"][0]
    (translation,) = translator.translate_window(["abc"])
    output = translation.outputs[0]
    assert sentence["target"] == output.text
    ended = len(output.token_scores) > len(output.ids)
    written = [*output.ids, EOS] if ended else list(output.ids)
    source = [*translator.task.encode_source("abc"), EOS]
    model: Any = translator.engine.models[0]
    rows = torch.tensor([source]), torch.tensor([[BOS, *written[:-1]]])
    expected = {kind: weights[0] for kind, weights in model.attention_weights(*rows).items()}
    assert sentence["shapes"] == {kind: list(expected[kind].shape) for kind in KINDS}
    flat = torch.cat([expected[kind].flatten() for kind in KINDS])
    torch.testing.assert_close(unpacked(sentence["weights"]), flat, atol=0.005, rtol=0)
    assert len(sentence["tokens"]["source"]) == len(source)
    assert len(sentence["tokens"]["read"]) == len(sentence["tokens"]["written"]) == len(written)
    assert sentence["tokens"]["read"][0] == ["start", "mark"]
    assert sentence["tokens"]["read"][1:] == sentence["tokens"]["written"][:-1]
    assert (sentence["tokens"]["written"][-1] == ["end", "mark"]) == ended


def test_an_output_that_was_cut_has_no_end(translator: Translator) -> None:
    cut = replace(translator, options=replace(translator.options, max_length_offset=0))
    (translation,) = cut.translate_window(["abcdefgh"])
    output = translation.outputs[0]
    assert len(output.token_scores) == len(output.ids)
    tokens = data_of(page_of(cut, ["abcdefgh"]))["sentences"][0]["tokens"]
    assert tokens["written"][-1] != ["end", "mark"]
    assert len(tokens["read"]) == len(output.ids)


def test_the_page_loads_nothing(translator: Translator) -> None:
    content = page_of(translator, ["abc"])
    elements = parsed(content).elements
    addresses = [
        v
        for _, given in elements
        for k, v in given.items()
        if k in ("src", "href", "srcset", "data")
    ]
    assert addresses == ["data:,"]
    policy = next(given["content"] for _, given in elements if given.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert b"://" not in content
    assert b"@import" not in content


def test_text_that_looks_like_a_page_stays_text(translator: Translator) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)> {{data}}"
    content, usual = page_of(translator, [evil]), page_of(translator, ["abc"])
    assert parsed(content).elements == parsed(usual).elements
    assert data_of(content)["sentences"][0]["source"] == evil


def test_a_sentence_that_is_too_long_is_named(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "MAX_TOKENS", 9)
    warnings: list[str] = []
    short = replace(translator, options=replace(translator.options, max_length_offset=0))
    content = page_of(short, ["abc", "abcdefgh", "abcdefg"], warnings.append)
    assert [sentence["source"] for sentence in data_of(content)["sentences"]] == ["abc", "abcdefg"]
    assert [warning.split(": ")[0] for warning in warnings] == ["in:2"]


def test_a_model_without_attention_weights_is_refused(translator: Translator) -> None:
    without: Any = replace(translator.engine, models=[SimpleNamespace(shows_attention=False)])  # type: ignore[type-var]
    with pytest.raises(UsageError, match="attention_weights"):
        sentences_of(replace(translator, engine=without), {})


def test_the_command_writes_the_page_of_the_first_lines(
    nmt: Callable[..., tuple[int, str, str]], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    source, out = tmp_path / "in", tmp_path / "page.html"
    source.write_text("\n" + "abc\nhg\n" * 11)
    code, printed, messages = nmt(
        "attention", tiny_checkpoint, "--input", source, "--out", out, "--beam", 2
    )
    assert (code, printed) == (0, "")
    data = data_of(out.read_bytes())
    assert [sentence["source"] for sentence in data["sentences"]] == ["abc", "hg"] * 10
    assert f"{tiny_checkpoint} · 20 sentences" in out.read_text()
    assert "the first 20 lines" in messages
    assert str(out) in messages
    written = out.read_bytes()
    assert nmt("attention", tiny_checkpoint, "--input", source, "--out", source)[0] == 2
    assert nmt("attention", tmp_path, "--input", source, "--out", out)[0] == 1
    assert out.read_bytes() == written
