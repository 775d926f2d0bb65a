"""Tests of the recipes, whose Python files are scripts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

RECIPES = Path(__file__).resolve().parents[2] / "recipes"

Bash = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: in a checkout, recipes call the nmt of its environment."""
    return shutil.copytree(RECIPES, tmp_path_factory.mktemp("checkout") / "recipes")


@pytest.fixture(scope="session")
def variables(forked_nmt: Path) -> Callable[..., dict[str, str]]:
    """This environment, with the nmt of the tests first on the path."""
    path = os.pathsep.join(
        [str(forked_nmt.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    )

    def environment(**more: str) -> dict[str, str]:
        return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **more}

    return environment


@pytest.fixture(scope="session")
def bash(variables: Callable[..., dict[str, str]]) -> Bash:
    """Run `bash ARGUMENTS`.

    Fail unless it ends with the exit code `code` and without a traceback.
    """

    def run(
        *arguments: object, code: int = 0, cwd: Path | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["bash", *map(str, arguments)],
            capture_output=True,
            encoding="utf-8",
            env=variables(**more),
            timeout=500,
            cwd=cwd,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


# An nmt that notes its arguments and writes a word of each result's kind. Its interpreter is this
# script, too, which finds $GPUS GPUs. At the command $STOP it ends with code 9.
PROGRAM = """#!/bin/bash
case "$*" in
  *device_count*) echo "$GPUS" && exit ;;
  */bin/nmt\\ *) call="${*:2}" command="$2" ;;
  *torchrun.py*) call="$*" command=train ;;
  *) exec {python} "$@" ;;
esac
[[ " $* " != *" --dry-run "* || " $* " != *" $REFUSED "* ]] || exit 2
[[ " $* " != *" --dry-run "* ]] || exit 0
echo "$call" >>{folder}/calls
[[ "$command" != "$STOP" ]] || exit 9
for word; do
  case "$last" in
    --out) out="$word" ;;
    --config) config="$word" ;;
  esac
  last="$word"
done
case "$command" in
  prepare | average) mkdir -p "$out" && touch "$out/made" ;;
  train)
    mkdir -p "$out/checkpoints/step-00000080"
    printf '\\x02\\0\\0\\0\\0\\0\\0\\0{}' >"$out/checkpoints/step-00000080/model.safetensors"
    cp "${config:-{folder}/run/config.json}" "$out/config.json"
    cp {folder}/run/metrics.jsonl {folder}/run/summary.json "$out"
    ;;
  translate) echo hallo && echo "2 lines: 12.5 sentences/s" >&2 ;;
  score) echo '{"scores": [{"metric": "multi30k", "score": 38.5},' \
    '{"metric": "multi-bleu", "score": 40.0}]}' ;;
esac
"""


@pytest.fixture
def dry(bash: Bash, tmp_path: Path) -> Bash:
    """Run a recipe with the program above, in a checkout of its own.

    The directory `run` has what nmt train writes.
    """
    shutil.copytree(RECIPES, tmp_path / "checkout" / "recipes")
    (tmp_path / "bin").mkdir()
    (tmp_path / "run").mkdir()
    for name in ("config.json", "metrics.jsonl", "summary.json"):
        (tmp_path / "run" / name).touch()
    program = PROGRAM.replace("{folder}", str(tmp_path)).replace("{python}", sys.executable)
    for name, text in {"python": program, "nmt": f"#!{tmp_path}/bin/python\n"}.items():
        (tmp_path / "bin" / name).write_text(text, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def run(
        script: str, *arguments: object, code: int = 0, **more: str
    ) -> subprocess.CompletedProcess[str]:
        variables = {"PATH": path, "GPUS": "1", "STOP": "", "REFUSED": "-", **more}
        return bash(
            tmp_path / "checkout" / "recipes" / script,
            *arguments,
            code=code,
            cwd=tmp_path,
            **variables,
        )

    return run


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], list[str]]:
    """The calls of nmt since the last time, of the recipes run by `dry`."""

    def read() -> list[str]:
        path = tmp_path / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    return read


class Results:
    """Writes what a recipe's stages leave in its directory, with made-up figures."""

    @staticmethod
    def write_json(path: Path, value: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value), encoding="utf-8")

    @staticmethod
    def write_run(run: Path, perplexity: float, parameters: int) -> None:
        folder = run / "checkpoints" / "step-00000020"
        folder.mkdir(parents=True)
        save_file(
            {"weights": np.zeros((parameters // 10, 10), dtype=np.float16)},
            folder / "model.safetensors",
        )
        records = [
            {"step": 10, "lr": 0.5, "validation_perplexity": perplexity + 1},
            {"step": 20, "lr": 0.25, "validation_perplexity": perplexity},
            {"step": 21, "lr": 0.125},
        ]
        (run / "metrics.jsonl").write_text(
            "".join(json.dumps(record) + "\n" for record in records), encoding="utf-8"
        )

    @staticmethod
    def score(identity: str, value: float) -> dict[str, Any]:
        return {
            "metric": identity,
            "score": value,
            "name": f"the full name of {identity}",
            "signature": "nrefs:1",
        }


@pytest.fixture(scope="session")
def results() -> type[Results]:
    return Results


@pytest.fixture
def table_of(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, list[str]]]:
    """The rows, by their names, of the table that a script prints for some arguments."""

    def of(script: ModuleType, *arguments: str) -> dict[str, list[str]]:
        script.main(*arguments)
        return table_rows(capsys.readouterr().out)

    return of


def table_rows(text: str) -> dict[str, list[str]]:
    rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.split("\n")
        if line[:1] == "|"
    )
    return {row[0]: row[1:] for row in rows}


@pytest.fixture(scope="session")
def rows_of() -> Callable[[str], dict[str, list[str]]]:
    """The rows of a Markdown table, by their names."""
    return table_rows
