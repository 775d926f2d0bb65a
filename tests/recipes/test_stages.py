"""Stages: done once, and again exactly when something that they rest on is no longer what it was."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = """#!/usr/bin/env bash
# A recipe of three stages.
source "{recipes}/stages.sh"
word=red
while (($#)); do
  case "$1" in
    --from | --to | --redo | --list) stage_flag "$@" && shift "$stage_flag_words" ;;
    --word) word="$2" && shift 2 ;;
    *) usage_error "unknown argument $1" ;;
  esac
done
out="{folder}/out"
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
  printf 'count %s %s\\n' "$stage_state" "$stage_damaged" >>"{folder}/log"
  [[ ! -e "{folder}/stop" ]] || {{ printf 1 >>"$out/number" && return 1; }}
  printf 2 >>"$out/number"
}}
stage paint "some paint" "" "pots lid" paint "$word"
stage close "the lid on" "paint" "closed" close
stage --resumes count "on and on" "close" "numb*" count
run_stages
"""

# What takes a moment to save when it is asked to stop.
TRAINER = """
stop() {{ printf '%s\\n' "$1" >>"{folder}/heard" && sleep 1.5 && touch "{folder}/saved" && exit 143; }}
for signal in TERM INT USR1; do trap "stop $signal" "$signal"; done
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
def recipe(script: Path) -> Recipe:
    def run(*arguments: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["bash", str(script), *arguments], capture_output=True, text=True, env={**os.environ, **environment}
        )
        assert done.returncode == code, done.stderr
        return done

    return run


def log(folder: Path) -> list[str]:
    """Which stages ran since the last call."""
    path = folder / "log"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def test_what_is_done_is_done_once(tmp_path: Path, recipe: Recipe) -> None:
    recipe()
    assert log(tmp_path) == ["paint", "close", "count new "]
    assert recipe().stderr.count("done already") == 3
    assert log(tmp_path) == []


def test_other_settings_bring_a_stage_back_and_what_needs_it_until_a_result_is_the_same(
    tmp_path: Path, recipe: Recipe
) -> None:
    recipe()
    log(tmp_path)
    assert "its settings or inputs are not those" in recipe("--word", "blue").stderr
    assert log(tmp_path) == ["paint", "close"]  # another pot, the same lid: nothing new to count
    recipe("--redo", "paint", "--word", "blue")
    assert log(tmp_path) == ["paint"]


@pytest.mark.parametrize("harm", ["changed", "missing", "added"])
def test_a_result_that_is_not_as_recorded_is_made_again(tmp_path: Path, recipe: Recipe, harm: str) -> None:
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
    listed = recipe("--list").stdout.split("\n")
    assert listed[0].split()[:2] == ["paint", "damaged"]
    assert listed[1].split()[:2] == ["close", "done"]
    assert ("another" if harm == "added" else "one pot") in recipe().stderr
    assert log(tmp_path) == ["paint"]
    assert [path.name for path in pot.parent.iterdir()] == ["one pot"]
    assert pot.read_text(encoding="utf-8") == "red\n"


def test_a_stage_that_fails_ends_the_recipe_and_the_next_start_goes_on_there(tmp_path: Path, recipe: Recipe) -> None:
    (tmp_path / "fail").touch()
    failed = recipe(code=7)
    assert "the stage close stopped with exit code 7. The same command goes on from there" in failed.stderr
    assert log(tmp_path) == ["paint", "close"]
    (tmp_path / "fail").unlink()
    assert recipe("--list").stdout.split("\n")[1].split()[:2] == ["close", "interrupted"]
    recipe()  # the half result was removed, else the stage would fail
    assert log(tmp_path) == ["close", "count new "]


def start(script: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """A recipe whose stage `close` is at work, in a process group of its own."""
    process = subprocess.Popen(
        ["bash", str(script), *arguments],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **environment},
    )
    while not (script.parent / "waiting").exists():
        assert process.poll() is None
        time.sleep(0.02)
    return process


def test_a_killed_recipe_goes_on(tmp_path: Path, recipe: Recipe, script: Path) -> None:
    (tmp_path / "wait").touch()
    process = start(script)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (tmp_path / "wait").unlink()
    log(tmp_path)
    assert "close: the lid on (was interrupted)" in recipe().stderr
    assert log(tmp_path) == ["close", "count new "]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
@pytest.mark.parametrize("reaches", ["all", "the shell alone", "the shell of a further machine"])
def test_a_signal_stops_what_runs_and_waits_for_it(
    tmp_path: Path, recipe: Recipe, script: Path, number: signal.Signals, reaches: str
) -> None:
    (tmp_path / "save").touch()
    further = reaches == "the shell of a further machine"
    if further:
        recipe("--to", "paint")
    process = start(script, *(("--from", "close", "--to", "close") if further else ()), NODE_RANK=str(int(further)))
    (os.killpg if reaches == "all" else os.kill)(process.pid, number)
    _, told = process.communicate()
    assert (tmp_path / "saved").exists()
    assert process.returncode == 128 + number
    assert f"the stage close was stopped by {number.name}. The same command goes on from there" in told
    heard = (tmp_path / "heard").read_text(encoding="utf-8").split()
    assert heard[0] == (number.name.removeprefix("SIG") if reaches == "all" else "TERM")


def test_one_recipe_at_a_time_works_in_a_folder(tmp_path: Path, recipe: Recipe, script: Path) -> None:
    (tmp_path / "wait").touch()
    process = start(script)
    refused = recipe(code=2).stderr
    assert f"another recipe is at work in {tmp_path}/out" in refused
    assert f" {process.pid} " in refused
    assert (tmp_path / "out" / "closed").read_text(encoding="utf-8") == "half"
    assert recipe("--list").stdout.split("\n")[1].split()[:2] == ["close", "interrupted"]
    recipe("--from", "paint", "--to", "paint", NODE_RANK="1")  # shares in the first machine's work

    # What a killed recipe has started still writes there.
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    refused = recipe(code=2).stderr
    still_there = refused.partition("(process ")[2].partition(")")[0].split()
    assert still_there
    assert str(process.pid) not in still_there
    for number in still_there:
        os.kill(int(number), signal.SIGKILL)
    (tmp_path / "wait").unlink()
    assert "close: the lid on (was interrupted)" in recipe().stderr


def test_a_stage_that_resumes_keeps_what_it_has_and_hears_why_it_runs(tmp_path: Path, recipe: Recipe) -> None:
    (tmp_path / "stop").touch()
    recipe(code=1)
    (tmp_path / "stop").unlink()
    recipe()
    assert (tmp_path / "out" / "number").read_text(encoding="utf-8") == "12"
    (tmp_path / "out" / "numbers").touch()
    recipe()
    assert log(tmp_path)[-2:] == ["count interrupted ", "count damaged numbers"]


def test_a_stage_that_makes_nothing_is_an_error(tmp_path: Path, recipe: Recipe) -> None:
    (tmp_path / "lazy").touch()
    assert "stage close ended well, but did not make all of: closed" in recipe(code=1).stderr
    (tmp_path / "lazy").unlink()
    recipe()
    assert log(tmp_path) == ["paint", "close", "close", "count new "]


def test_from_and_to(tmp_path: Path, recipe: Recipe) -> None:
    refused = recipe("--from", "close", code=2)
    assert "the stage paint before it is not done" in refused.stderr
    recipe("--to", "paint")
    assert log(tmp_path) == ["paint"]
    recipe("--from", "close", "--to", "close")
    assert log(tmp_path) == ["close"]
    assert "there is no stage shut, only paint close count" in recipe("--to", "shut", code=2).stderr
    assert "--from needs the name of a stage" in recipe("--from", code=2).stderr


def test_flags_that_contradict_each_other_are_refused_and_touch_nothing(tmp_path: Path, recipe: Recipe) -> None:
    recipe()
    log(tmp_path)
    for arguments, message in (
        (("--from", "close", "--to", "paint"), "--from close is a later stage than --to paint"),
        (("--redo", "paint", "--from", "close"), "--from close is a later stage than --redo paint"),
        (("--redo", "close", "--to", "paint"), "--redo close is a later stage than --to paint"),
        (("--redo", "shut"), "there is no stage shut"),
    ):
        assert message in recipe(*arguments, code=2).stderr
    assert recipe().stderr.count("done already") == 3
    recipe("--from", "close", "--redo", "close", "--to", "close")
    assert log(tmp_path) == ["close"]


def test_a_record_goes_only_when_its_stage_runs(tmp_path: Path, recipe: Recipe) -> None:
    recipe()
    (tmp_path / "out" / "closed").unlink()
    (tmp_path / "fail").touch()
    recipe("--redo", "count", code=7)
    assert (tmp_path / "out" / "stages" / "count").exists()


def test_list_does_nothing(tmp_path: Path, recipe: Recipe) -> None:
    assert recipe("--list").stdout.split("\n")[0].split(maxsplit=3) == ["paint", "to", "do", "some paint"]
    assert not (tmp_path / "out").exists()
    assert log(tmp_path) == []


def test_a_further_machine_shares_in_one_stage_and_records_nothing(tmp_path: Path, recipe: Recipe) -> None:
    assert "say by --from and --to" in recipe(code=2, NODE_RANK="1").stderr
    recipe("--to", "close")
    log(tmp_path)
    recipe("--from", "count", "--to", "count", NODE_RANK="1")
    assert log(tmp_path) == ["count new "]
    assert sorted(path.name for path in (tmp_path / "out" / "stages").iterdir()) == [".lock", "close", "paint"]
