from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.annexes.around.sentences import Sentences, splitter
from nmt_cli.annexes.around.words import ALIGNMENT, PLACES_OF_UNITS
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.outputs import Output, Translation
from nmt_cli.decoding.own_engine import OwnEngine
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import EOS
from nmt_cli.task import Task

PARAGRAPH = "Tom lives in Boston. He is a teacher.  Dr. Smith, e.g., is not! Is he?"
SENTENCES = ["Tom lives in Boston. ", "He is a teacher.  ", "Dr. Smith, e.g., is not! ", "Is he?"]


class TextTask(Task):
    name = "text"
    languages = ("en", "de")


TextTask.__abstractmethods__ = frozenset()


@dataclass(frozen=True)
class Stub(Translator):
    """Outputs each sentence in upper case, a token a word.

    Longer ones than three words are cut before the end.
    """

    calls: list[list[str]] = field(default_factory=list)

    def translate_texts(
        self, texts: Sequence[str], done: Any = lambda places: None, **rest: Any
    ) -> Any:
        self.calls.append(list(texts))
        for place in range(len(texts)):
            done([place])
        return [self.translated(text) for text in texts]

    def translated(self, line: str) -> Translation:
        tokens = line.strip().upper().split()
        scores = [-float(len(token)) for token in tokens] + [-0.5] * (0 < len(tokens) <= 3)
        output = Output(
            " ".join(tokens), sum(scores) / 2, tokens, scores, ids=list(range(4, 4 + len(tokens)))
        )
        return Translation(line, [output], len(tokens), len(tokens) > 3)


@pytest.fixture
def stub() -> Stub:
    options = TranslateOptions(split_sentences=True)
    return Stub(OwnEngine(TextTask(), object(), torch.device("cpu")), options)  # type: ignore[arg-type]  # no model is used


def split(line: str, language: str | None = None) -> list[str]:
    return splitter(TextTask(), language)(line)


def test_a_paragraph_is_split_after_its_sentences() -> None:
    assert split(PARAGRAPH) == SENTENCES
    assert split("Das ist z. B. gut. Am 3. Mai kam er.", "de") == [
        "Das ist z. B. gut. ",
        "Am 3. Mai kam er.",
    ]
    assert split("Am 25. März sah er Ms. Zhu. Wen?", "de") == [
        "Am 25. März sah er Ms. Zhu. ",
        "Wen?",
    ]
    assert split("M. Dupont est là. « Oui ! »", "fr") == ["M. Dupont est là. ", "« Oui ! »"]
    assert split("我喜欢你。你好吗？", "zh-Hans") == ["我喜欢你。", "你好吗？"]
    assert split("राम घर गया। सीता आई।", "hi") == ["राम घर गया। ", "सीता आई।"]


@pytest.mark.parametrize(
    "line", ["", "  \t", "Tom lives in Boston", " A dog.  ", "\n\nA dog.\n", "..."]
)
def test_one_sentence_is_the_line_itself(line: str) -> None:
    assert split(line) == [line]


@settings(max_examples=300)
@given(
    st.text() | st.text("aB.!?…\t\n \u0085\u00a0\u2028\u3000。！é中"),
    st.sampled_from(["en", "de", "zh", "ar", "xx"]),
)
def test_nothing_of_a_line_is_lost(line: str, language: str) -> None:
    sentences = split(line, language)
    assert "".join(sentences) == line
    assert all(sentence.strip() for sentence in sentences) or len(sentences) == 1


def test_unicode_spaces_that_sentencex_cannot_read() -> None:
    text = "“–[\x85*;…2\r„„“！2！(„ aA.—A？A\t*\x85\r？]éé“\x00؟[2؟3\xa0 日é—A…* !\tB\x85."
    assert "".join(split(text)) == text


def test_the_outputs_of_the_sentences_are_joined(stub: Stub) -> None:
    assert stub.translate([PARAGRAPH]) == [
        "TOM LIVES IN BOSTON. HE IS A TEACHER.  DR. SMITH, E.G., IS NOT! IS HE?"
    ]
    (one,) = stub.translate_window(["One two. Three four."])
    (output,) = one.outputs
    assert output.tokens == ["ONE", "TWO.", "</s>", "THREE", "FOUR."]
    assert output.token_scores == [-3.0, -4.0, -0.5, -5.0, -5.0, -0.5]
    assert output.ids == [4, 5, EOS, 4, 5]
    assert output.score == pytest.approx(sum(output.token_scores) / 2)
    assert (one.source, one.source_length, one.truncated) == ("One two. Three four.", 4, False)


def translations(scores: Sequence[Sequence[float]]) -> list[Translation]:
    """Of sentences whose outputs are named by their scores."""
    return [
        Translation("", [Output(str(score), score, [], []) for score in row], 1, truncated=False)
        for row in scores
    ]


def test_the_best_outputs_of_a_line_are_those_with_the_highest_sums() -> None:
    rows = [[-1.0, -1.5, -4.0], [-0.5, -0.75, -3.0], [-2.0, -2.125, -9.0]]
    around = Sentences(lambda line: [line], TranslateOptions(nbest=3, beam=3))
    sums = sorted((a + b + c for a in rows[0] for b in rows[1] for c in rows[2]), reverse=True)
    line = around.write("a. b. c.", translations(rows), ["a. ", "b. ", "c."])
    assert [output.score for output in line.outputs] == sums[:3]
    assert [output.text for output in line.outputs[:2]] == ["-1.0 -0.5 -2.0", "-1.0 -0.5 -2.125"]


def test_samples_are_joined_as_they_were_drawn() -> None:
    """An empty sentence has one output."""
    around = Sentences(lambda line: [line], TranslateOptions(nbest=2, sample=True))
    line = around.write(
        "a. b. ?", translations([[-3.0, -1.0], [-2.0, -5.0], [0.0]]), ["a. ", "b. ", "?"]
    )
    assert [output.score for output in line.outputs] == [-5.0, -6.0]


def test_links_are_of_the_words_of_the_line() -> None:
    around = Sentences(lambda line: [line], TranslateOptions())
    outputs = [
        Output(
            "B. A.",
            0.0,
            [],
            [],
            notes={ALIGNMENT: [(1, 0), (0, 1)], PLACES_OF_UNITS: [(1, 0), (0, 2)]},
        ),
        Output("", 0.0, [], []),
        Output(
            "D C!",
            0.0,
            [],
            [],
            notes={ALIGNMENT: [(1, 0), (0, 1)], PLACES_OF_UNITS: [(1, 0), (0, 1), (2, 2)]},
        ),
    ]
    parts = ["a b.  ", "x. ", "c d!"]
    line = around.write(
        "".join(parts), [Translation("", [output], 1, truncated=False) for output in outputs], parts
    )
    assert line.text == "B. A.  D C!"
    assert line.outputs[0].alignment == [(1, 0), (0, 1), (4, 2), (3, 3)]
    assert line.outputs[0].notes[PLACES_OF_UNITS] == [(1, 0), (0, 2), (6, 4), (5, 5), (7, 6)]


def test_a_word_may_go_on_in_the_next_sentence() -> None:
    """Without spaces, a line of Chinese is one word."""
    around = Sentences(lambda line: [line], TranslateOptions())
    outputs = [Output(text, 0.0, [], [], notes={ALIGNMENT: [(0, 0)]}) for text in ("a.", "b.")]
    translations = [Translation("", [output], 1, truncated=False) for output in outputs]
    line = around.write("我。你。", translations, ["我。", "你。"])
    assert line.outputs[0].alignment == [(0, 0), (0, 1)]


def test_a_sentence_that_was_cut_has_no_end(stub: Stub) -> None:
    (translation,) = stub.translate_window(["One two three four. Five."])
    (output,) = translation.outputs
    assert output.tokens == ["ONE", "TWO", "THREE", "FOUR.", "FIVE."]
    assert len(output.token_scores) == len(output.tokens) + 1
    assert translation.truncated


def test_lines_of_one_sentence_are_translated_as_without(stub: Stub) -> None:
    lines = ["A dog runs.", "", "  ", " two men talk", PARAGRAPH]
    together = stub.translate_window(lines)
    assert together[:4] == [stub.translated(line) for line in lines[:4]]
    assert [translation.source for translation in together] == lines


def test_the_sentences_of_all_lines_are_translated_together(stub: Stub) -> None:
    done: list[str] = []
    lines = [PARAGRAPH, "", "A dog. A cat."]
    stub.translate_window(lines, done.extend)
    assert done == lines
    assert stub.calls == [[*SENTENCES, "", "A dog. ", "A cat."]]


@pytest.mark.parametrize(
    ("source", "outputs", "joined"),
    [
        ("我喜欢你。你好吗？", ["I like you.", "How are you?"], "I like you. How are you?"),
        ("I like you. How are you?", ["我喜欢你。", "你好吗？"], "我喜欢你。你好吗？"),
        ("One.\t\tTwo. Three.", ["A.", "", "C."], "A.\t\tC."),
        ("One. Two.", ["A.", ""], "A."),
        ("One.\u00a0Two.\u2028 Three.", ["A.", "B.", "C."], "A. B. C."),
    ],
)  # fmt: skip
def test_the_space_between_sentences(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, source: str, outputs: list[str], joined: str
) -> None:
    texts = iter(outputs)
    monkeypatch.setattr(
        Stub,
        "translated",
        lambda self, line: Translation(line, [Output(next(texts), 0.0, [], [])], 1, False),
    )
    chinese = replace(stub, options=replace(stub.options, sentence_language="zh"))
    assert (chinese if source[0] == "我" else stub).translate([source]) == [joined]


def test_what_does_not_combine_is_refused(stub: Stub) -> None:
    with pytest.raises(UsageError, match=r"--split-sentences .* prefixes"):
        stub.translate(["A."], prefixes=["B"])
    with pytest.raises(UsageError, match=r"--sentence-language .*--split-sentences"):
        replace(stub, options=TranslateOptions(sentence_language="en"))


@pytest.mark.parametrize(("task_language", "given_code", "match"), [
    (None, "en", "--split-sentences .* 'text'"),
    ("", None, "checkpoint's source language is ''"),
    ("english", None, "'english', not an ISO 639 code"),
    ("en", "English", "--sentence-language is 'English'"),
])  # fmt: skip
def test_the_language(
    stub: Stub,
    task_language: str | None,
    given_code: str | None,
    match: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        TextTask, "languages", task_language if task_language is None else (task_language, "de")
    )
    with pytest.raises(UsageError, match=match):
        replace(stub, options=TranslateOptions(split_sentences=True, sentence_language=given_code))


def test_a_missing_extra_is_named(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(UsageError, match=r"pip install 'nmt-cli\[sentences\]'"):
        replace(stub)


def test_what_is_not_text_is_refused(stub: Stub) -> None:
    with pytest.raises(UsageError, match="expected lines of text, not int"):
        stub.translate([1])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="one line, not several"):
        stub.translate(["A.\nB."])
    assert stub.translate(["Half a pair: \ud800. Done."]) == ["HALF A PAIR: ?. DONE."]
