"""Repairs of malformed outputs are reported, and drawings are complete, in both modes."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli.annexes.parsing.task import ParsingConfig, ParsingTask
from nmt_cli.annexes.serving.interactive import converse
from nmt_cli.commands import translate as command
from nmt_cli.commands.translate_options import TranslateCommandOptions
from nmt_cli.cores import Sizes
from nmt_cli.decoding.around import Chain
from nmt_cli.decoding.options import SearchOptions, SearchSettings, TranslateOptions
from nmt_cli.decoding.outputs import Output, Translation

BEST = "(TOP (S (NN cat)))"
DEEP = "(TOP " + "(S " * 20 + "(NN cat) (VBZ sleeps)" + ")" * 20 + ")"


def translator(*outputs: Output) -> Any:
    """A translator with the same outputs for every line."""
    options = TranslateOptions(
        search=SearchOptions(nbest=len(outputs)), read_ahead=9, max_source_length=9
    )

    def translate_window(lines: Sequence[str], *_: object, **__: object) -> list[Translation]:
        return [Translation(line, list(outputs), 1, truncated=False) for line in lines]

    return SimpleNamespace(
        task=ParsingTask(ParsingConfig()),
        options=options,
        search=SearchSettings(beam=2, alpha=0.3),
        chain=Chain(),
        translate_window=translate_window,
        engine=SimpleNamespace(
            workers=lambda *_: nullcontext(), positions=None, sizes=Sizes(1, 1, 1)
        ),
    )


def output(text: str, **repairs: int) -> Output:
    return Output(text, -1.0, ["x"], [-1.0], repairs)


@pytest.fixture
def translate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Run `nmt translate` on two lines with the given outputs. Return standard error."""

    def run(*outputs: Output) -> str:
        monkeypatch.setattr(
            "nmt_cli.decoding.loading.load_translator", lambda *_, **__: translator(*outputs)
        )
        (tmp_path / "in").write_text("the cat\nthe dog\n")
        settings = TranslateCommandOptions(
            checkpoints=(tmp_path,), input=tmp_path / "in", output=tmp_path / "out"
        )
        command.translate(settings)
        return capsys.readouterr().err

    return run


def test_repairs_of_all_the_n_best_are_counted(translate: Any) -> None:
    messages = translate(output(BEST), output(BEST, unclosed=1), output(BEST, unclosed=2, flat=1))
    assert messages.split("\n")[-2] == "repaired 4 of 6 outputs: unclosed 6, flat 2"
    assert "repaired" not in translate(output(BEST))


def test_a_drawing_is_complete_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(TranslateCommandOptions, "to_terminal", True)
    translation = Translation("", [output(DEEP)], 2, truncated=False)
    shown = command._format(
        translator(output(DEEP)), translation, 1, TranslateCommandOptions(checkpoints=())
    )
    assert shown.count("S\n") == 20
    assert shown.endswith("VBZ sleeps\n")
    plain = TranslateCommandOptions(checkpoints=(), format="text")
    assert command._format(translator(output(DEEP)), translation, 1, plain) == f"{DEEP}\n"


def conversation(
    answering: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """The output after one line was typed."""
    lines = ["the cat"]

    def typed(_: str) -> str:
        if not lines:
            raise EOFError
        return lines.pop()

    monkeypatch.setattr(builtins, "input", typed)
    converse(answering)
    return capsys.readouterr().out


def test_interactive_draws_trees_and_reports_repairs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = conversation(translator(output(DEEP)), monkeypatch, capsys)
    assert "VBZ sleeps\n" in shown
    assert "repaired" not in shown
    shown = conversation(translator(output(BEST), output(BEST, flat=1)), monkeypatch, capsys)
    assert "repaired: flat 1" in " ".join(shown.split())
