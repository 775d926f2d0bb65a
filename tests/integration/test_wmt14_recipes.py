"""The recipes for the paper's tables, every stage, on a small corpus: they cannot rot."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from number_names import write_corpus

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **more}


def recipe(name: str, *arguments: object, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(RECIPES / name), *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env=environment(**more),
        timeout=500,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def stages_run(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The names of the stages that were not done already."""
    heads = [line[3:] for line in done.stderr.split("\n") if line.startswith("== ") and ": " in line]
    return [head.split(":")[0] for head in heads if not head.endswith("done already") and not head.startswith("smoke")]


def table_rows(text: str) -> dict[str, list[str]]:
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n") if line.startswith("|"))
    return {row[0]: row[1:] for row in rows}


def test_english_german_from_archives_to_the_table_through_kills_and_damage(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [str(RECIPES / "wmt14_en_de.sh"), "--smoke", "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    checkpoints = out / "base" / "run" / "checkpoints"
    deadline = time.monotonic() + 300
    while not (checkpoints / "step-00000003").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()

    gone_on = recipe("wmt14_en_de.sh", "--smoke", "--out", out)
    remaining = ["train-base", "average-base", "translate-base", "score-base", "table-base"]
    assert stages_run(gone_on) == remaining
    assert "train-base: preset transformer_base (was interrupted)" in gone_on.stderr
    assert "torch.distributed.run --nproc-per-node 2" in gone_on.stderr
    assert "step       2 " not in gone_on.stderr  # it did not begin anew
    rows = table_rows(gone_on.stdout)
    assert rows["lines, newstest2014 (test)"][1:] == ["50", "0"]
    assert rows["steps"][:2] == ["100,000", "8"]
    assert rows["checkpoints averaged"] == ["5", "5", "0"]
    assert rows["BLEU, get-ende-bleu-quotes"][0] == "27.30"
    assert float(rows["dev perplexity a piece, last checkpoint"][1]) > 1

    again = recipe("wmt14_en_de.sh", "--smoke", "--out", out)
    assert stages_run(again) == []
    assert again.stdout == gone_on.stdout

    # A checkpoint that is averaged is trained again, from the one before it, and so is everything that rests on it.
    weights = checkpoints / "step-00000007" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    mended = recipe("wmt14_en_de.sh", "--smoke", "--out", out)
    assert stages_run(mended)[0] == "train-base"
    checksums = json.loads((weights.parent / "checksums.json").read_text(encoding="utf-8"))
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == checksums["model.safetensors"]
    assert "not as recorded: base/run/checkpoints/step-00000007/model.safetensors" in mended.stderr
    listed = recipe("wmt14_en_de.sh", "--smoke", "--out", out, "--list").stdout.split("\n")[:-1]
    assert [line.split()[1] for line in listed] == ["done"] * 8


def test_english_french_from_a_folder_of_text(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", "en", "fr", train=1500, valid=30, test=30)
    done = recipe("wmt14_en_fr.sh", "--smoke", tmp_path / "corpus", "--model", "big", "--out", tmp_path / "out")
    rows = table_rows(done.stdout)
    lines = (tmp_path / "corpus" / "train.en").read_text(encoding="utf-8").count("\n")
    assert rows["lines, giga-fren (train)"][1:] == [str(min(2000, lines) // 5), "0"]
    assert rows["checkpoints averaged"] == ["20", "20", "0"]
    assert rows["BLEU, multi-bleu"][0] == "41.80"
    assert "--preset transformer_big_en_fr" in done.stderr
    assert "--subwords wordpiece" in done.stderr


def test_table3_trains_rows_and_compares_them(tmp_path: Path) -> None:
    done = recipe("table3.sh", "--smoke", "--out", tmp_path, "--rows", "B_dk16")
    rows = table_rows(done.stdout)
    assert list(rows)[2:] == ["base", "B_dk16"]  # after the head and the rule: the base model comes unasked
    assert float(rows["B_dk16"][-1]) < float(rows["base"][-1])  # smaller keys, fewer parameters
    assert (tmp_path / "table3.md").read_text(encoding="utf-8") == done.stdout


def test_table3_takes_multi30k_where_it_lies(tmp_path: Path) -> None:
    for name, count in (("train", 50), ("val", 10), ("test_2016_flickr", 10)):
        for language, word in (("en", "house"), ("de", "Haus")):
            text = "".join(f"{word} {i}\n" for i in range(count))
            (tmp_path / f"{name}.{language}").write_text(text, encoding="utf-8")
    done = recipe("table3.sh", "--multi30k", tmp_path, "--out", tmp_path / "out", "--to", "extract")
    assert "val                  valid           10 lines, NOT as expected: 1,014" in done.stderr
    text = (tmp_path / "out" / "text" / "val.de").read_text(encoding="utf-8")
    assert text == (tmp_path / "val.de").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["wmt14_en_de.sh", "wmt14_en_fr.sh", "table3.sh"])
def test_they_explain_themselves(tmp_path: Path, name: str) -> None:
    shown = recipe(name, "--help").stdout
    assert f"recipes/{name}" in shown
    assert all(flag in shown for flag in ("--from", "--to", "--list", "--local", "--smoke", "NMT_MIRROR"))
    assert "--no-such-flag" in recipe(name, "--no-such-flag", code=2).stderr
    listed = recipe(name, "--list", "--out", tmp_path).stdout
    assert listed.startswith("download ")
    assert " to do " in listed


@pytest.mark.parametrize(
    ("name", "arguments", "code", "message"),
    [
        ("wmt14_en_de.sh", ("--model", "small"), 2, "--model is base or big, not small"),
        ("wmt14_en_de.sh", ("--local", "{folder}/none"), 2, "there is no such folder"),
        ("wmt14_en_de.sh", ("--to", "trian"), 2, "there is no stage trian, only download extract"),
        (
            "wmt14_en_de.sh",
            ("--local", "{folder}"),
            1,
            "holds neither training-parallel-europarl-v7.tgz nor its en text",
        ),
        ("wmt14_en_de.sh", ("--smoke", "{folder}"), 1, "no folder there holds train"),
        ("wmt14_en_de.sh", ("--from", "prepare"), 2, "the stage download before it is not done"),
        ("table3.sh", ("--rows", "base F"), 2, "there is no row F, only base A_h1"),
        ("table3.sh", ("--multi30k", "{folder}/none"), 2, "there is no such folder"),
        ("table3.sh", ("--multi30k", "{folder}", "--steps", "some"), 2, "--steps needs a number"),
    ],
)
def test_they_say_what_is_wrong(tmp_path: Path, name: str, arguments: tuple[str, ...], code: int, message: str) -> None:
    (tmp_path / "empty").mkdir()
    given = [argument.format(folder=tmp_path / "empty") for argument in arguments]
    assert message in recipe(name, *given, "--out", tmp_path / "out", code=code).stderr
