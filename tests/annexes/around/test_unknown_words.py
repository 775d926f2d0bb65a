"""Unknown words of outputs become source words, or their translations."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.annexes.around.unknown_words import UnknownWords, read_dictionary
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.decoding.outputs import Output
from nmt_cli.decoding.own_engine import OwnEngine
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import DataError, UsageError
from nmt_cli.interfaces import EOS, UNK
from nmt_cli.task import Example
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask

CPU = torch.device("cpu")


def task(**settings: Any) -> TranslationTask:
    values = {
        "source_lang": "en",
        "target_lang": "de",
        "subwords": "none",
        "vocab_size": 100,
        **settings,
    }
    new_task = TranslationTask(TranslationConfig(**values))
    new_task.learn([new_task.normalise(Example("the dog sees .", "der Hund sieht .", ""))])
    return new_task


class Scripted:
    """Writes `script`.

    Its layers and heads attend to `places` [layers, H, T], and then to the last one of them.
    """

    shows_attention = True
    output_weight = torch.zeros(1)

    def __init__(self, script: Sequence[int], places: Any) -> None:
        self.vocabulary_size, self.script, self.places = 11, [*script, EOS], torch.tensor(places)
        self.seen: list[tuple[list[int], list[int]]] = []

    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        self.seen.append((source[0].tolist(), target_in[0].tolist()))
        columns = torch.arange(target_in.size(1)).clamp(max=self.places.size(2) - 1)
        weights = torch.nn.functional.one_hot(self.places[:, :, columns], source.size(1)).float()
        return {"cross": weights.expand(len(source), -1, -1, -1, -1)}

    def start(self, source: Tensor) -> Position:
        return Position()

    def step(self, tokens: Tensor, state: Position) -> tuple[Tensor, Position]:
        scores = torch.full((len(tokens), self.vocabulary_size), -5.0)
        scores[:, self.script[min(state.length, len(self.script) - 1)]] = -0.1
        return scores, Position(state.length + 1)


@dataclass(frozen=True)
class Position:
    length: int = 0

    def select(self, rows: Tensor) -> Position:
        return self


def replaced(
    line: str, script: Sequence[int], places: Any, dictionary: Any = None, **settings: Any
) -> str:
    new_task = task(**settings)
    model: Any = Scripted(script, places)
    around = UnknownWords(
        dictionary or {},
        engine=OwnEngine(new_task, model, CPU, [model]),
        options=TranslateOptions(),
    )
    request = Request(new_task.encode_source(line), 100, line=line)
    written = new_task.target_tokens(script)
    ((output,),) = around.revise([request], [[Output("", 0.0, written, [], ids=script)]])
    assert output.tokens == written
    return output.text


def test_unknown_words_are_copied_from_the_place_with_most_attention() -> None:
    """The mean over the heads of the layer before the last."""
    script = [*task().encode_target("der"), UNK, *task().encode_target("sieht .")]
    line = "the dog  Rex  sees Zorro ."
    zorro, rex = ([[0, place, 3, 5]] * 2 for place in (4, 2))
    assert replaced(line, script, [rex, zorro, rex]) == "der Zorro sieht ."
    assert replaced(line, script, [zorro, rex, zorro]) == "der Rex sieht ."


def test_the_end_of_the_source_is_no_word() -> None:
    assert replaced("Rex", [UNK], [[[1]]]) == "Rex"


def test_words_are_copied_as_the_tokeniser_gives_them_and_as_written() -> None:
    """With --moses and --lowercase: the comma is a word, the case stays, outputs are joined."""
    script = [*task(moses=True, lowercase=True).encode_target("der hund"), UNK, UNK]
    output_words = replaced("The dog, Zorro.", script, [[[0, 1, 2, 3]]], moses=True, lowercase=True)
    assert output_words == "der hund, Zorro"


def test_a_dictionary_translates_words_and_the_rest_is_copied() -> None:
    dictionary = {"Cat": "Kater", "cat": "Katze"}
    for word, translation in (
        ("Cat", "Kater"),
        ("CAT", "Katze"),
        ("cat", "Katze"),
        ("cats", "cats"),
    ):
        assert replaced(f"the {word}", [UNK], [[[1]]], dictionary) == translation


@pytest.mark.parametrize(
    "how", [{"beam": 2, "nbest": 2}, {"beam": 1}, {"sample": True, "top_k": 1}]
)
def test_translations_have_no_unknown_words(how: dict[str, Any]) -> None:
    """`tokens` keep them. Without the option, a search has no unknown words at all."""
    plain_task = task()
    model: Any = Scripted([*plain_task.encode_target("der"), UNK], [[[0, 1]]])
    translator = Translator(OwnEngine(plain_task, model, CPU, [model]))
    (translation,) = translator.translate_detailed(["the Rex"], replace_unknown=True, **how)
    assert translation.text == "der Rex"
    assert translation.outputs[0].tokens == ["der", "<unk>"]
    assert translator.translate(["the Rex"], prefixes=["der"], replace_unknown=True, **how) == [
        "der Rex"
    ]
    assert UNK not in next(translator.translate_detailed(["the Rex"], **how)).outputs[0].ids


def test_subwords_and_models_without_attention_are_refused() -> None:
    subwords = TranslationTask(
        TranslationConfig(source_lang="en", target_lang="de", subwords="bpe")
    )
    options = TranslateOptions(replace_unknown=True)
    model: Any = Scripted([], [[[]]])
    with pytest.raises(UsageError, match=r"--replace-unknown .* whole words"):
        Translator(OwnEngine(subwords, model, CPU, [model]), options)
    nothing: Any = SimpleNamespace(shows_attention=False)
    with pytest.raises(UsageError, match=r"attention_weights.*--replace-unknown"):
        Translator(OwnEngine(task(), model, CPU, [nothing]), options)


def test_the_file_of_a_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv.gz"
    path.write_bytes(gzip.compress("dog\tHund\nice cream\tEis\r\ndog\tKöter\n".encode()))
    assert read_dictionary(path) == {"dog": "Hund", "ice cream": "Eis"}


@pytest.mark.parametrize("line", ["dog Hund", "dog\tHund\tKöter", "dog\t", "\tHund", ""])
def test_a_wrong_line_of_a_dictionary_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "words.tsv"
    path.write_text(f"cat\tKatze\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"words\.tsv:2: "):
        read_dictionary(path)
