"""`nmt prepare --config FILE`: all flags from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt_cli.cli import main

FILE = """
train: train
valid: elsewhere
out: from-file
workers: 1
source-lang: en
target_lang: de
task: {name: translation, vocab-size: 60}
separate-vocabularies: true
"""
FLAGS = """prepare --source-lang en --target-lang de --vocab-size 60
    --separate-vocabularies --workers 1
    --train train --valid valid --out data"""


def run(arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as end:
        main(arguments.split())
    return end.value.code


def contents(folder: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


@pytest.fixture(autouse=True)
def _text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, numbers in (("train", range(100)), ("valid", range(200, 210))):
        for language, word in (("en", "house"), ("de", "Haus")):
            Path(f"{name}.{language}").write_text(
                "".join(f"{word} {number}\n" for number in numbers)
            )


def test_the_result_is_that_of_the_command_line_which_wins() -> None:
    assert run(FLAGS) == 0
    Path("p.yaml").write_text(FILE)
    assert run("prepare --config p.yaml --valid valid") == 0
    assert contents("from-file") == contents("data")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("task: {vocab-size: 3}", "--vocab-size must be at least 5, not 3"),
        ("vald: valid", "there is no setting vald: did you mean valid?"),
        ("task: parsing", "--source-lang belongs to the task translation, not to parsing."),
    ],
)
def test_errors_name_the_file(
    capfd: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    Path("p.yaml").write_text(f"source-lang: en\ntrain: train\nout: data\n{content}\n")
    assert run("prepare --config p.yaml") == 2
    assert capfd.readouterr().err.startswith(f"nmt: p.yaml: {message}")
