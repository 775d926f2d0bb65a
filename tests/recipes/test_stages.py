"""Stages run once, and again when their command, their inputs or their results change."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """# A recipe of three stages.
source "{recipes}/stages.sh"
word=red
while (($#)); do
  case "$1" in
    --word) word="$2" stage_flag_words=2 ;;
    *) stage_flag "$@" ;;
  esac
  shift "$stage_flag_words"
done
begin_stages "{folder}/out"
paint() {{
  printf 'paint\\n' >>"{folder}/log"
  mkdir -p "$out/pots"
  printf '%s\\n' "$1" >"$out/pots/one pot"
  printf 'same\\n' >"$out/lid"
}}
close() {{
  printf 'close\\n' >>"{folder}/log"
  [[ ! -e "{folder}/fail" ]] || {{ printf half >"$out/closed" && return 7; }}
  [[ ! -e "{folder}/wait" ]] || {{ printf half >"$out/closed" && touch "{folder}/waiting" && sleep 60; }}
  [[ ! -e "{folder}/save" ]] || bash "{folder}/trainer.sh"
  [[ ! -e "{folder}/lazy" ]] || return 0
  [[ ! -e "$out/closed" ]]
  cat "$out/lid" >"$out/closed"
}}
count() {{
  printf 'count\\n' >>"{folder}/log"
  [[ ! -e "{folder}/stop" ]] || {{ printf 1 >>"$out/number" && return 1; }}
  printf 2 >>"$out/number"
}}
stage paint "some paint" "" "pots lid" paint "$word"
stage close "the lid on" "paint" "closed" close
stage --resumes count "on and on" "close" "numb*" count
run_stages
"""

# Takes a moment to save when it is stopped.
TRAINER = """
stop() {{ printf '%s\\n' "$1" >>"{folder}/received" && sleep 1 && touch "{folder}/saved" && exit 143; }}
for signal in TERM INT HUP USR1; do trap "stop $signal" "$signal"; done
touch "{folder}/waiting"
sleep 60 &
wait
"""

Recipe = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def script(tmp_path: Path, recipes: Path) -> Path:
    path = tmp_path / "recipe.sh"
    path.write_text(SCRIPT.format(recipes=recipes, folder=tmp_path), encoding="utf-8")
    (tmp_path / "trainer.sh").write_text(TRAINER.format(folder=tmp_path), encoding="utf-8")
    return path


@pytest.fixture
def recipe(script: Path, bash: Recipe) -> Recipe:
    def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return bash(script, *arguments, **more)

    return run


def log(folder: Path) -> list[str]:
    """The stages that ran since the last call."""
    path = folder / "log"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def states(recipe: Recipe) -> list[str]:
    """The states of the stages from --list."""
    return [line[25:34].strip() for line in recipe("--list").stdout.split("\n")[:-1]]


def test_a_stage_runs_once(tmp_path: Path, recipe: Recipe) -> None:
    assert states(recipe) == ["to do"] * 3
    assert not (tmp_path / "out").exists()
    recipe()
    assert log(tmp_path) == ["paint", "close", "count"]
    assert recipe().stderr.count("done already") == 3
    assert states(recipe) == ["done"] * 3
    assert log(tmp_path) == []


def test_a_changed_setting_runs_a_stage_again_and_later_ones_only_if_their_inputs_changed(
    tmp_path: Path, recipe: Recipe
) -> None:
    recipe()
    log(tmp_path)
    recipe("--word", "blue")
    assert log(tmp_path) == ["paint", "close"]  # close's result is the same, so count does not run
    recipe("--redo", "paint", "--word", "blue")
    assert log(tmp_path) == ["paint"]


@pytest.mark.parametrize("harm", ["changed", "missing", "added"])
def test_a_damaged_result_is_made_again(tmp_path: Path, recipe: Recipe, harm: str) -> None:
    recipe()
    log(tmp_path)
    pot = tmp_path / "out" / "pots" / "one pot"
    if harm == "changed":
        stamp = pot.stat()
        pot.write_text("rad\n", encoding="utf-8")
        os.utime(pot, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    elif harm == "missing":
        pot.unlink()
    else:
        (pot.parent / "another").touch()
    assert states(recipe) == ["damaged", "done", "done"]
    assert ("another" if harm == "added" else "one pot") in recipe().stderr
    assert log(tmp_path) == ["paint"]
    assert [path.name for path in pot.parent.iterdir()] == ["one pot"]
    assert pot.read_text(encoding="utf-8") == "red\n"


def test_a_failed_stage_ends_the_recipe_and_runs_again(tmp_path: Path, recipe: Recipe) -> None:
    (tmp_path / "fail").touch()
    assert "stage close" in recipe(code=7).stderr
    assert log(tmp_path) == ["paint", "close"]
    (tmp_path / "fail").unlink()
    recipe()  # its half result was removed, else the stage would fail
    assert log(tmp_path) == ["close", "count"]
    (tmp_path / "out" / "closed").unlink()
    (tmp_path / "fail").touch()
    recipe("--redo", "count", code=7)
    assert (tmp_path / "out" / "stages" / "count").exists()  # a record is removed only when its stage runs


def start(script: Path, variables: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    """Start a recipe, in a session of its own, and wait until its stage `close` runs."""
    command = ["bash", str(script), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, env=variables)
    while not (script.parent / "waiting").exists():
        assert process.poll() is None
        time.sleep(0.02)
    return process


def kill_session(session: int) -> None:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(path.name)) == session:
                os.kill(int(path.name), signal.SIGKILL)
        except ProcessLookupError:
            pass


def test_one_recipe_at_a_time_and_a_killed_one_continues(
    tmp_path: Path, recipe: Recipe, script: Path, variables: Callable[..., dict[str, str]]
) -> None:
    (tmp_path / "wait").touch()
    process = start(script, variables())
    assert f"{tmp_path}/out" in recipe(code=2).stderr
    assert states(recipe) == ["done", "to do", "to do"]
    recipe("--from", "paint", "--to", "paint", NODE_RANK="1")  # shares in the first machine's work
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert f"{tmp_path}/out" in recipe(code=2).stderr  # the stage's command is still running
    assert (tmp_path / "out" / "closed").read_text(encoding="utf-8") == "half"
    kill_session(process.pid)
    (tmp_path / "wait").unlink()
    log(tmp_path)
    recipe()
    assert log(tmp_path) == ["close", "count"]


@pytest.mark.parametrize(
    ("number", "reaches_all", "rank"),
    [(signal.SIGTERM, False, 0), (signal.SIGINT, True, 0), (signal.SIGHUP, False, 0), (signal.SIGUSR1, False, 1)],
)
def test_a_signal_stops_the_command_once_and_waits_for_it(
    tmp_path: Path,
    recipe: Recipe,
    script: Path,
    variables: Callable[..., dict[str, str]],
    number: signal.Signals,
    reaches_all: bool,
    rank: int,
) -> None:
    (tmp_path / "save").touch()
    flags = ("--from", "close", "--to", "close") if rank else ()
    if rank:
        recipe("--to", "paint")
    process = start(script, variables(NODE_RANK=str(rank)), *flags)
    (os.killpg if reaches_all else os.kill)(process.pid, number)
    _, shown = process.communicate()
    assert (tmp_path / "saved").exists()
    assert process.returncode == 128 + number
    assert number.name in shown
    assert (tmp_path / "received").read_text(encoding="utf-8") == "TERM\n"


def test_a_stage_that_resumes_keeps_its_results(tmp_path: Path, recipe: Recipe) -> None:
    (tmp_path / "stop").touch()
    recipe(code=1)
    (tmp_path / "stop").unlink()
    recipe()
    assert (tmp_path / "out" / "number").read_text(encoding="utf-8") == "12"


def test_a_stage_without_its_result_is_an_error(tmp_path: Path, recipe: Recipe) -> None:
    (tmp_path / "lazy").touch()
    assert "closed" in recipe(code=1).stderr
    (tmp_path / "lazy").unlink()
    recipe()
    assert log(tmp_path) == ["paint", "close", "close", "count"]


def test_from_to_and_redo_select_stages(tmp_path: Path, recipe: Recipe) -> None:
    assert "paint is not done" in recipe("--from", "close", code=2).stderr
    recipe("--to", "paint")
    assert log(tmp_path) == ["paint"]
    recipe("--from", "close", "--redo", "close", "--to", "close")
    assert log(tmp_path) == ["close"]
    for wrong in (
        ("--from", "close", "--to", "paint"),
        ("--redo", "paint", "--from", "close"),
        ("--redo", "close", "--to", "paint"),
        ("--to", "shut"),
        ("--from",),
    ):
        assert wrong[-1] in recipe(*wrong, code=2).stderr
    assert log(tmp_path) == []


def test_a_further_machine_shares_one_stage_and_records_nothing(tmp_path: Path, recipe: Recipe) -> None:
    assert "--from and --to" in recipe(code=2, NODE_RANK="1").stderr
    recipe("--to", "close")
    log(tmp_path)
    recipe("--from", "count", "--to", "count", NODE_RANK="1")
    assert log(tmp_path) == ["count"]
    assert sorted(path.name for path in (tmp_path / "out" / "stages").iterdir()) == [".lock", "close", "paint"]


def test_list_shows_the_commands(tmp_path: Path, recipes: Path, bash: Recipe) -> None:
    script = tmp_path / "recipe.sh"
    script.write_text(f"""source "{recipes}/stages.sh"
    begin_stages "{tmp_path}/out" && stage_flag --list
    stage train "train" "" run train_everywhere data --out run --preset "my preset"
    stage score "score" "" score.json to_file score.json nmt score hypotheses --ref test.de
    stage other "a function" "" other other
    run_stages""")
    lines = bash(script).stdout.split("\n")
    assert lines[1].strip() == "nmt train data --out run --preset 'my preset'"
    assert lines[3].strip() == "nmt score hypotheses --ref test.de > score.json"
    assert lines[4].startswith("other ")
    assert lines[5] == ""
