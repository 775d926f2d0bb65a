"""What every recipe does: read its flags, end with its commands, and leave no half of a file."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

# A recipe of three commands: the second fails if told so, or takes a moment to save when it is
# stopped.
SCRIPT = """#!/usr/bin/env bash
# A recipe.
#
#   --word WORD   of the file

source "{recipes}/common.sh"
word=red small="" two_words=""
read_flags "word seeds small? two_words ..." "$@"
printf '%s\\n' "$word" "$small" "$two_words" "${{words[*]}}" "${{train_flags[*]}}" >read
[[ -e file ]] || to_file file bash trainer.sh
touch later
"""
TRAINER = """
stop() { echo TERM >>received; sleep 0.5; touch saved; exit 143; }
trap stop TERM
for signal in INT HUP USR1; do trap "echo $signal >>received" "$signal"; done
echo half
[[ ! -e fail ]] || exit 7
[[ -e go ]] || { touch waiting; sleep 60 & wait; }
"""

Bash = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def script(tmp_path: Path, recipes: Path) -> Path:
    (tmp_path / "recipe.sh").write_text(SCRIPT.format(recipes=recipes), encoding="utf-8")
    (tmp_path / "trainer.sh").write_text(TRAINER, encoding="utf-8")
    (tmp_path / "go").touch()
    return tmp_path / "recipe.sh"


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ((), ["red", "", "", "", ""]),
        (("--small", "--word", "dark blue"), ["dark blue", "yes", "", "", ""]),
        (
            ("one", "--small", "that", "--two-words", "x", "two"),
            ["red", "that", "x", "one two", ""],
        ),
        (("--word", "x", "--", "--word", "y"), ["x", "", "", "", "--word y"]),
    ],
)
def test_flags(script: Path, bash: Bash, arguments: tuple[str, ...], read: list[str]) -> None:
    bash(script, *arguments, cwd=script.parent)
    assert (script.parent / "read").read_text(encoding="utf-8").split("\n")[:-1] == read


@pytest.mark.parametrize(
    "arguments",
    [
        ("--wrod", "x"),
        ("--word",),
        ("--word", "--small"),
        ("-x",),
        ("--seeds", "1.5"),
        ("--", "--help"),
    ],
)
def test_wrong_flags(script: Path, bash: Bash, arguments: tuple[str, ...]) -> None:
    if arguments[0] == "--":
        # The user's flags of nmt train are not the recipe's.
        bash(script, *arguments, cwd=script.parent)
    else:
        assert arguments[0] in bash(script, *arguments, code=2, cwd=script.parent).stderr
        assert not (script.parent / "read").exists()


def test_help_is_the_opening_comment(script: Path, bash: Bash) -> None:
    assert (
        bash(script, "--help", cwd=script.parent).stdout
        == "A recipe.\n\n  --word WORD   of the file\n"
    )


def test_the_output_directory_may_have_the_name_of_an_argument(
    recipes: Path, bash: Bash, tmp_path: Path
) -> None:
    """Of a language, such as kor: before the directory is made, and after."""
    script = tmp_path / "recipe.sh"
    script.write_text(
        f"source {recipes}/common.sh; out=kor; prepare() {{ made_from '' files \"$1\" && "
        "to_file kor/train true; }; prepare kor; prepare kor; prepare fra",
        encoding="utf-8",
    )
    (tmp_path / "files").mkdir()
    done = bash(script, cwd=tmp_path, code=2)
    assert f"kor/ has '{tmp_path}/files kor', not '{tmp_path}/files fra'" in done.stderr


def test_a_failure_ends_the_recipe_with_its_code_and_without_the_file(
    script: Path, bash: Bash
) -> None:
    (script.parent / "fail").touch()
    bash(script, code=7, cwd=script.parent)
    assert not (script.parent / "file").exists()
    assert not (script.parent / "later").exists()
    (script.parent / "fail").unlink()
    bash(script, cwd=script.parent)
    assert (script.parent / "file").read_text(encoding="utf-8") == "half\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_stops_the_command_once_and_waits_for_it(
    script: Path, variables: Callable[..., dict[str, str]], number: signal.Signals
) -> None:
    folder = script.parent
    (folder / "go").unlink()
    process = subprocess.Popen(
        ["bash", script], cwd=folder, start_new_session=True, env=variables()
    )
    while not (folder / "waiting").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, number)  # as a terminal does
    assert process.wait(60) == 128 + number
    assert (folder / "saved").exists()
    assert (folder / "received").read_text(encoding="utf-8") == "TERM\n"
    assert not (folder / "file").exists()
    assert not (folder / "later").exists()
    assert [path for path in Path("/proc").glob("[0-9]*") if session_of(path) == process.pid] == []


def session_of(process: Path) -> int:
    """The session of a process that has not ended."""
    try:
        state, _, _, session, *_ = (
            (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if state == "Z" else int(session)
