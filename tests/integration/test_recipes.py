"""The small recipes, every stage, on little text with few steps."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from number_names import write_corpus

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
TINY = "--num-layers 1 --d-model 16 --d-ff 16 --num-heads 1 --max-steps 10 --save-every 1 --batch-tokens 256".split()


def bash(*arguments: object, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `bash ARGUMENTS` with the commands of this environment; fail unless it ends with the exit code `code`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        timeout=300,
        cwd=cwd,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def smaller(tmp_path: Path) -> Path:
    """A copy of the recipes that scores 20 numbers, and learns 300 subwords of Multi30k."""
    copy = tmp_path / "checkout" / "recipes"
    shutil.copytree(RECIPES, copy)
    for name, full, small in (
        ("quickstart.sh", "--out corpus", "--train 700 --valid 20 --test 20 --out corpus"),
        ("multi30k.sh", "--vocab-size 10000", "--vocab-size 300"),
    ):
        script = (copy / name).read_text(encoding="utf-8")
        assert script.count(full) == 1
        (copy / name).write_text(script.replace(full, small), encoding="utf-8")
    return copy


def test_quickstart_from_nothing_to_a_table_and_again(tmp_path: Path, smaller: Path) -> None:
    command = (smaller / "quickstart.sh", "--target", "fr", "--out", tmp_path / "quick", "--", *TINY)
    first = bash(*command, code=1)  # ten steps do not reach 95 %
    row = next(line for line in first.stdout.split("\n") if "exact match" in line)
    assert "at least 95" in row
    assert "no" in row
    for part in ("score, bleu", "-> ", "--interactive"):
        assert part in first.stdout
    again = bash(*command, code=1)
    assert again.stderr.count("done already") == 6
    assert again.stdout.split("Took")[0] == first.stdout.split("Took")[0]


def test_multi30k_from_its_files_to_a_table(tmp_path: Path, smaller: Path) -> None:
    write_corpus(tmp_path, "en", "de", train=700, valid=20, test=20)
    for name, ours in (("train", "train"), ("val", "valid"), ("test_2016_flickr", "test")):
        for language in ("en", "de"):
            (tmp_path / f"{ours}.{language}").rename(tmp_path / f"{name}.{language}")
    subprocess.run(["gzip", tmp_path / "test_2016_flickr.en", tmp_path / "train.de"], check=True)
    done = bash(smaller / "multi30k.sh", ".", "--out", "out", "--", *TINY, code=1, cwd=tmp_path)
    assert "at least 40" in done.stdout


def test_your_language_pair_is_copied_and_edited(tmp_path: Path) -> None:
    write_corpus(tmp_path / "mine", "de", "fr", train=700, valid=20, test=20)
    settings = {
        "source": "de",
        "target": "fr",
        "train": "mine/train",
        "valid": "mine/valid",
        "test": "mine/test.de",
        "reference": "mine/test.fr",
        "vocabulary": "100",
        "preset": "quickstart",
        "steps": "5",
        "save_every": "2",
        "last": "2",
    }
    script = (RECIPES / "your_language_pair.sh").read_text(encoding="utf-8")
    for name, value in settings.items():
        script, found = re.subn(rf"^{name}=\S*", f"{name}={value}", script, flags=re.MULTILINE)
        assert found == 1
    script = script.replace("nmt train ", "nmt train --d-model 16 --d-ff 16 ")
    (tmp_path / "mine.sh").write_text(script.replace("last=2", "last=4"), encoding="utf-8")
    assert "fewer than 4 checkpoints" in bash("mine.sh", code=2, cwd=tmp_path).stderr
    assert not (tmp_path / "runs").exists()
    (tmp_path / "mine.sh").write_text(script, encoding="utf-8")
    assert "BLEU" in bash("mine.sh", cwd=tmp_path).stdout
    assert len((tmp_path / "runs/de-fr/test.fr").read_text(encoding="utf-8").split("\n")) == 21


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("quickstart.sh", "--help"), 0, ""),
        (("multi30k.sh", "--help"), 0, ""),
        (("quickstart.sh", "--no-such-flag"), 2, "--no-such-flag"),
        (("multi30k.sh",), 2, "directory"),
        (("multi30k.sh", ".", "--target", "cs"), 2, "cs"),
        (("multi30k.sh", "."), 1, "train.en"),
        (("multi30k.sh", ".", "--out"), 2, "--out"),
        (("quickstart.sh", "--", "--validation-bleu", "true"), 2, "true"),
        (("quickstart.sh", "--", "--d-model", "15"), 2, "15"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    if "--help" not in arguments and arguments[0] == "quickstart.sh":
        arguments = (arguments[0], "--out", "out", *arguments[1:])
    done = bash(RECIPES / arguments[0], *arguments[1:], code=code, cwd=tmp_path)
    assert message in done.stderr
    assert not list(tmp_path.iterdir())
    assert code or f"recipes/{arguments[0]}" in done.stdout


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck: apt install shellcheck")
@pytest.mark.parametrize("script", sorted(RECIPES.rglob("*.s[hb]*")), ids=lambda path: path.name)
def test_shell_scripts_are_clean(script: Path) -> None:
    done = subprocess.run(["shellcheck", "-x", "-P", str(RECIPES), str(script)], capture_output=True, text=True)
    assert done.stdout == ""
    assert done.returncode == 0
