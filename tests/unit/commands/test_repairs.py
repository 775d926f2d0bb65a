"""Repaired outputs are told, and drawn trees are whole: in a stream of lines and in a conversation."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli.commands import translate as command
from nmt_cli.commands.interactive import converse
from nmt_cli.commands.repairs import RepairCount
from nmt_cli.decoding.translator import Output, Translation
from nmt_cli.parsing.drawing import WholeDrawing, drawn
from nmt_cli.parsing.symbols import line_tree

BEST = "(TOP (S (NN cat)))"
DEEP = "(TOP " + "(S " * 20 + "(NN cat) (VBZ sleeps)" + ")" * 20 + ")"


class Trees:
    """As much of a task as is asked for: it repairs and draws."""

    def repaired(self, ids: Sequence[int], source: str) -> tuple[str, dict[str, int]]:
        raise AssertionError("the outputs are made already")

    def drawing(self, text: str) -> WholeDrawing:
        return drawn(line_tree(text))


def translator(*outputs: Output) -> Any:
    """It gives these outputs for each line."""
    options = SimpleNamespace(
        read_ahead=9, max_source_length=9, search=SimpleNamespace(beam=2, alpha=0.3, nbest=len(outputs))
    )

    def translate_window(lines: Sequence[str], *_: object) -> list[Translation]:
        return [Translation(line, list(outputs), 1, truncated=False) for line in lines]

    return SimpleNamespace(task=Trees(), options=options, translate_window=translate_window)


def output(text: str, **repairs: int) -> Output:
    return Output(text, -1.0, ["x"], [-1.0], repairs)


def test_counts_every_output_and_each_kind() -> None:
    count = RepairCount()
    assert str(count) == "repaired 0 of 0 outputs"
    count.add([{}, {"unclosed": 2}])
    count.add([{"unclosed": 1, "flat": 1}])
    assert str(count) == "repaired 2 of 3 outputs: unclosed 3, flat 1"


def test_all_of_the_n_best_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = translator(output(BEST), output(BEST, unclosed=1), output(BEST, unclosed=2))
    monkeypatch.setattr(command, "load_translator", lambda *_: made)
    (tmp_path / "in").write_text("the cat\nthe dog\n")
    command.translate(
        command.TranslateCommandOptions(checkpoints=(tmp_path,), input=tmp_path / "in", output=tmp_path / "out")
    )
    assert capsys.readouterr().err.split("\n")[-2] == "repaired 4 of 6 outputs: unclosed 6"


@pytest.mark.parametrize("columns", ["40", "80"])
def test_a_deep_tree_is_drawn_with_every_word(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = command.draw(Trees(), Translation("", [output(DEEP)], 2, truncated=False), scores=False)
    assert shown.count("S\n") == 20
    assert "NN cat\n" in shown
    assert shown.endswith("VBZ sleeps\n")


def conversation(made: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What is shown after one line."""
    lines = iter(["the cat"])

    def typed(_: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr(builtins, "input", typed)
    converse(made)
    return capsys.readouterr().out


def test_a_conversation_tells_repairs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "repaired" not in conversation(translator(output(BEST)), monkeypatch, capsys)
    shown = conversation(translator(output(BEST), output(BEST, flat=1)), monkeypatch, capsys)
    assert "repaired 1 of 2 outputs: flat 1" in " ".join(shown.split())


def test_a_conversation_draws_every_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = conversation(translator(output(DEEP)), monkeypatch, capsys)
    assert "NN cat\n" in shown
    assert "VBZ sleeps\n" in shown
