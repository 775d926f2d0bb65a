"""The recipes for the paper's tables, every stage, on a small corpus."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from number_names import write_corpus

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}


def recipe(script: str | Path, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(RECIPES / script), *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env=environment(),
        timeout=500,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def stages_run(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The names of the stages that were not done already."""
    heads = [line[3:] for line in done.stderr.split("\n") if line.startswith("== ") and ": " in line]
    return [head.split(":")[0] for head in heads if not head.endswith("done already")]


def table_rows(text: str) -> dict[str, list[str]]:
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n") if line.startswith("|"))
    return {row[0]: row[1:] for row in rows}


def test_english_german_from_archives_to_the_table_through_a_stop_and_damage(tmp_path: Path) -> None:
    command = ("wmt14_en_de.sh", "--smoke", "--out", tmp_path)
    process = subprocess.Popen(
        [str(RECIPES / command[0]), *map(str, command[1:])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    checkpoints = tmp_path / "base" / "run" / "checkpoints"
    deadline = time.monotonic() + 300
    while not (checkpoints / "step-00000003").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=300) == 128 + signal.SIGTERM

    continued = recipe(*command)
    assert stages_run(continued) == ["train-base", "average-base", "translate-base", "score-base", "table-base"]
    assert "torch.distributed.run --nproc-per-node 2" in continued.stderr
    assert "step       2 " not in continued.stderr  # it did not start anew
    rows = table_rows(continued.stdout)
    assert rows["lines, newstest2014 (test)"] == ["3,003", "20", "-2,983"]
    assert rows["steps"][:2] == ["100,000", "8"]
    assert rows["checkpoints averaged"] == ["5", "5", "0"]
    assert rows["score, get-ende-bleu-quotes"][0] == "27.30"
    assert float(rows["dev perplexity a subword, last checkpoint"][1]) > 1

    again = recipe(*command)
    assert stages_run(again) == []
    assert again.stdout == continued.stdout

    weights = checkpoints / "step-00000007" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    assert "step-00000007" in recipe(*command, code=1).stderr  # a damaged checkpoint is not averaged


def test_a_recipe_for_another_language_pair(tmp_path: Path) -> None:
    """English to Czech, made from English to French; the text is in a directory."""
    copy = tmp_path / "recipes"
    shutil.copytree(RECIPES, copy)
    for ending in ("sh", "json"):
        text = (copy / f"wmt14_en_fr.{ending}").read_text(encoding="utf-8")
        text = text.replace('"fr"', '"cs"').replace(".fr", ".cs").replace("define en fr", "define en cs")
        (copy / f"wmt14_en_cs.{ending}").write_text(text, encoding="utf-8")
    (copy / "wmt14_en_cs.sh").chmod(0o755)
    write_corpus(tmp_path / "corpus", "en", "fr", train=1500, valid=30, test=30)
    for path in (tmp_path / "corpus").glob("*.fr"):
        path.rename(path.with_suffix(".cs"))
    flags = ("--smoke", tmp_path / "corpus", "--model", "big", "--out", tmp_path / "out")
    done = recipe(copy / "wmt14_en_cs.sh", *flags)
    rows = table_rows(done.stdout)
    lines = (tmp_path / "corpus" / "train.en").read_text(encoding="utf-8").count("\n")
    assert rows["lines, giga-fren (train)"][1] == str(min(2000, lines) // 5)
    assert rows["checkpoints averaged"] == ["20", "20", "0"]
    assert {cells[0] for name, cells in rows.items() if name.startswith("score, ")} == {""}  # the paper has none
    assert "--preset transformer_big_en_fr" in done.stderr
    assert "--subwords wordpiece" in done.stderr
    (copy / "wmt14_en_cs.json").unlink()
    assert "wmt14_en_cs.json" in recipe(copy / "wmt14_en_cs.sh", "--out", tmp_path / "other", code=1).stderr


def test_table3_trains_rows_and_compares_them(tmp_path: Path) -> None:
    done = recipe("table3.sh", "--smoke", "--out", tmp_path, "--rows", "B_dk16")
    rows = table_rows(done.stdout)
    assert list(rows)[2:] == ["base", "B_dk16"]  # after the head and the rule: the base model is added
    assert float(rows["B_dk16"][-1]) < float(rows["base"][-1])  # smaller keys, fewer parameters
    assert (tmp_path / "table3.md").read_text(encoding="utf-8") == done.stdout


def test_table3_uses_multi30k_in_its_directory(tmp_path: Path) -> None:
    for name, count in (("train", 50), ("val", 10), ("test_2016_flickr", 10)):
        for language, word in (("en", "house"), ("de", "Haus")):
            text = "".join(f"{word} {i}\n" for i in range(count))
            (tmp_path / f"{name}.{language}").write_text(text, encoding="utf-8")
    done = recipe("table3.sh", "--multi30k", tmp_path, "--rows", "E", "--out", tmp_path / "out", "--to", "extract")
    assert "10 lines, NOT as expected: 1,014" in done.stderr
    text = (tmp_path / "out" / "text" / "val.de").read_text(encoding="utf-8")
    assert text == (tmp_path / "val.de").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("wmt14_en_de.sh", "nmt train data --out base/run --preset transformer_base"),
        ("wmt14_en_fr.sh", "nmt average base/run --last 5 --out base/averaged"),
        (
            "table3.sh",
            "nmt translate E/run --input text/newstest2013.en --output E/dev.de --beam 4 --alpha 0.6 2> E/dev.de.log",
        ),
    ],
)
def test_help_and_list(tmp_path: Path, name: str, command: str) -> None:
    shown = recipe(name, "--help").stdout
    assert f"recipes/{name}" in shown
    assert all(flag in shown for flag in ("--from", "--to", "--list", "--local", "--smoke", "NMT_MIRROR"))
    listed = recipe(name, "--list", "--out", tmp_path / "out").stdout
    assert listed.startswith("download ")
    assert f"\n    {command}\n" in listed
    assert "''" not in listed
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "arguments", "code", "message"),
    [
        ("wmt14_en_de.sh", ("--no-such-flag",), 2, "--no-such-flag"),
        ("wmt14_en_de.sh", ("--model", "small"), 2, "small"),
        ("wmt14_en_de.sh", ("--local", "{folder}/none"), 2, "{folder}/none"),
        ("wmt14_en_de.sh", ("--", "--validation-bleu", "true"), 2, "true"),
        ("wmt14_en_de.sh", ("--smoke", "--to", "trian"), 2, "trian"),
        ("wmt14_en_de.sh", ("--local", "{folder}", "--to", "prepare"), 1, "training-parallel-europarl-v7.tgz"),
        ("wmt14_en_de.sh", ("--smoke", "{folder}"), 1, "{folder}"),
        ("wmt14_en_de.sh", ("--from", "prepare"), 2, "download"),
        ("table3.sh", ("--rows", "base F"), 2, "row F"),
        ("table3.sh", ("--rows", "E*x"), 2, "E*x"),
        ("table3.sh", ("--multi30k", "{folder}/none"), 2, "{folder}/none"),
        ("table3.sh", ("--multi30k", "{folder}", "--steps", "some"), 2, "some"),
    ],
)
def test_wrong_arguments(tmp_path: Path, name: str, arguments: tuple[str, ...], code: int, message: str) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    given = [argument.format(folder=folder) for argument in arguments]
    assert message.format(folder=folder) in recipe(name, "--out", tmp_path / "out", *given, code=code).stderr
    assert code == 1 or not (tmp_path / "out").exists()
