"""Table 2's recipe: its stages, with programs that only write the files of a training; its settings; its table."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import table2

from nmt_cli.config import resolve
from nmt_cli.presets import PRESETS
from nmt_cli.registry import discover
from nmt_cli.training.settings import TrainingConfig

discover()

# An nmt that writes a word of each result's kind, and notes its arguments. Its interpreter is this bash script, too.
PROGRAM = """#!/bin/bash
[[ "$1" == */bin/nmt ]] || case "$*" in
  *device_count*) echo 8 && exit ;;
  *"import matplotlib"*) exit 1 ;;
  *) exec {python} "$@" ;;
esac
[[ " $* " != *" convs2s_small --num-layers "* ]] || exit 2
[[ " $* " != *" --dry-run "* ]] || exit 0
[[ "$*" != *"--train {folder}/out/none"* ]] || exit 1
for word; do
  case "$last" in
    --out) out="$word" ;;
    --output) out="$word" ;;
    --config) config="$word" ;;
  esac
  last="$word"
done
case "$2" in
  prepare | average) mkdir -p "$out" ;;
  train)
    mkdir -p "$out/checkpoints/step-00000080"
    printf '\\x02\\0\\0\\0\\0\\0\\0\\0{{}}' >"$out/checkpoints/step-00000080/model.safetensors"
    cp "${{config:-{folder}/config.json}}" "$out/config.json"
    cp {folder}/metrics.jsonl {folder}/summary.json "$out"
    ;;
  translate) mkdir -p "$(dirname "$out")" && echo hallo >"$out" && echo "2 lines: 12.5 sentences/s" >&2 ;;
  score) echo '{{"scores": [{{"metric": "multi30k", "score": 38.5}}, {{"metric": "multi-bleu", "score": 40.0}}]}}' ;;
esac
echo "$*" >>{folder}/calls
"""
CONFIG = {
    "criterion": {"name": "label_smoothed_cross_entropy", "label_smoothing": 0.1},
    "data": {"path": "data"},
    "imports": [],
    "model": {"name": "transformer", "d_model": 64},
    "schedule": {"name": "inverse_sqrt", "warmup_steps": 1000, "learning_rate_scale": 1.0},
    "training": {"seed": 1, "batch_tokens": 2048},
}
METRICS = [
    {"step": 20, "training_seconds": 20.0, "lr": 1e-4},
    {"step": 80, "training_seconds": 50.0, "lr": 4e-4, "validation_bleu": 20.0},
]
SUMMARY = {"steps": 80, "training_hours": 0.5, "flops": 1e15, "flops_as_table2": 2e15, "peak_learning_rate": 0.002}


def write_run(run: Path) -> None:
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in METRICS), encoding="utf-8")
    (run / "summary.json").write_text(json.dumps(SUMMARY), encoding="utf-8")


Recipe = Callable[..., CompletedProcess[str]]


@pytest.fixture
def recipe(recipes: Path, tmp_path: Path, bash: Recipe) -> Recipe:
    """Runs table2.sh in a checkout of its own, with the program above; results in out."""
    shutil.copytree(recipes, tmp_path / "checkout" / "recipes")
    write_run(tmp_path)
    (tmp_path / "bin").mkdir()
    program = PROGRAM.format(folder=tmp_path, python=sys.executable)
    for name, text in {"python": program, "nmt": f"#!{tmp_path}/bin/python\n"}.items():
        (tmp_path / "bin" / name).write_text(text, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    for name in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de", "fr"):
            (tmp_path / f"{name}.{language}").write_text("a\nb\n", encoding="utf-8")
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    script = tmp_path / "checkout" / "recipes" / "table2.sh"

    def run(*arguments: object, code: int = 0) -> CompletedProcess[str]:
        return bash(script, "--out", tmp_path / "out", *arguments, code=code, PATH=path, PROCESSES="1")

    return run


def calls(folder: Path, command: str) -> list[str]:
    """The arguments of each call of this command of nmt, with the folder of the results as OUT."""
    lines = (folder / "calls").read_text(encoding="utf-8").replace(f"{folder}/out", "OUT").splitlines()
    return [line.split(f" {command} ", 1)[1] for line in lines if f"/nmt {command} " in line]


def rows(text: str) -> dict[str, dict[str, str]]:
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {cells[0]: dict(zip(table[0], cells, strict=True)) for cells in table[2:]}


def test_small_systems_get_the_same_time_and_a_table(recipe: Recipe, tmp_path: Path) -> None:
    command = ("--multi30k", tmp_path, "--systems", "gnmt*2 deep_att", "--minutes", "5")
    done = recipe(*command)
    trainings = calls(tmp_path, "train")
    assert trainings[0].startswith("OUT/data --out OUT/gnmt/trial --preset gnmt_small --max-steps 80 ")
    assert trainings[1] == "OUT/data --out OUT/gnmt/run --config OUT/gnmt/settings.json"
    assert trainings[2].startswith(
        "OUT/data --out OUT/gnmt_rl/trial --init-from OUT/gnmt/averaged --config OUT/gnmt_rl/"
    )
    assert " --batch-tokens 256 --max-steps 16 --log-every 4 " in trainings[2]
    reward = "--config OUT/gnmt_rl/settings.json"
    assert trainings[3] == f"OUT/data --out OUT/gnmt_rl/run --init-from OUT/gnmt/averaged {reward}"
    assert trainings[4] == "OUT/data --out OUT/gnmt-2/run --config OUT/gnmt/settings.json --seed 2"
    assert trainings[5] == f"OUT/data --out OUT/gnmt_rl-2/run --init-from OUT/gnmt-2/averaged {reward} --seed 2"
    assert [line.split()[0] for line in trainings[6:]] == ["OUT/data-words"] * 2
    # Two steps a second in the trial.
    steps = {
        name: json.loads((tmp_path / "out" / name / "settings.json").read_text("utf-8"))["training"]["max_steps"]
        for name in ("gnmt", "gnmt_rl", "deep_att")
    }
    assert steps == {"gnmt": 480, "gnmt_rl": 120, "deep_att": 600}
    ensemble = "gnmt_rl/averaged gnmt_rl-2/averaged --input text/test_2016_flickr.en --output gnmt_rl-ensemble/test.de"
    translations = calls(tmp_path, "translate")
    assert f"{ensemble} --beam 4 --alpha 0.6" in translations
    assert ["--replace-unknown" in call for call in translations] == [False] * 5 + [True]

    table = rows(done.stdout)
    assert list(table) == ["GNMT, before RL", "GNMT + RL", "Deep-Att + PosUnk", "GNMT + RL, ensemble"]
    assert table["GNMT + RL"]["BLEU, paper"] == "24.60"
    assert table["GNMT + RL"]["BLEU, here"] == "38.50 ± 0.00"
    assert table["GNMT + RL"]["minutes"] == "60.0"  # those of both trainings
    assert table["GNMT + RL, ensemble"]["FLOPs, counted"] == "4.0e+15"  # of two models with two trainings each
    assert table["Deep-Att + PosUnk"]["sentences/s"] == "12.5"
    assert (
        json.loads((tmp_path / "out" / "curves.json").read_text("utf-8"))["GNMT + RL"]
        == [[[50 / 60, 20.0], [100 / 60, 20.0]]] * 2
    )

    (tmp_path / "calls").unlink()
    assert recipe(*command).stdout == done.stdout
    assert not (tmp_path / "calls").exists()


def test_systems_of_the_papers_size(recipe: Recipe, tmp_path: Path) -> None:
    listed = recipe("--target", "fr", "--systems", "bytenet gnmt convs2s*2 base big", "--list").stdout
    for command in (
        "--subwords character --vocab-size 400 --out data-characters\n",
        "nmt train data-characters --out bytenet/run --preset bytenet_paper --keep-last 1\n",
        " --beam 4 --alpha 0.6 --max-length-offset 200 2> bytenet/test.fr.log\n",
        "nmt train data --out gnmt/run --preset gnmt_paper_en_fr --keep-last 1\n",
        "table2.py settings gnmt/run 10% reward > gnmt_rl/settings.json\n",
        "nmt train data --out convs2s-2/run --preset convs2s_paper_en_fr --keep-last 1 --seed 2\n",
        "nmt translate convs2s/averaged convs2s-2/averaged --input ",
        "nmt train data --out base/run --preset transformer_base\n",  # as in wmt14_en_fr.sh
        "nmt average base/run --last 5 --out base/averaged\n",
        "nmt train data --out big/run --preset transformer_big_en_fr\n",
    ):
        assert command in listed
    everything = recipe("--list").stdout
    assert "--preset transformer_big" in everything
    assert "moe" not in everything  # it fits into few GPUs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--systems", "rnn"), "there is no system rnn; known: bytenet deep_att gnmt convs2s moe base big"),
        (("--systems", "base*0"), "base*0"),
        (("--systems", "base moe base*2"), "system base is given twice"),
        (("--minutes", "30"), "--multi30k"),
        (("--target", "cs"), "cs"),
        (("--multi30k", "{folder}", "--minutes", "half"), "half"),
        (("--multi30k", "{folder}", "--systems", "big"), "big"),
        (("--seeds",), "--seeds"),
    ],
)
def test_wrong_arguments(recipe: Recipe, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    given = [argument.format(folder=tmp_path) for argument in arguments]
    assert message in recipe(*given, code=2).stderr
    assert not (tmp_path / "out").exists()


def test_flags_that_do_not_suit_all_systems_are_rejected_at_once(recipe: Recipe, tmp_path: Path) -> None:
    command = ("--multi30k", tmp_path, "--systems", "base convs2s", "--", "--num-layers", "1")
    assert "--preset convs2s_small --num-layers 1" in recipe(*command, code=2).stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(("amount", "steps"), [("400", 400), ("10%", 8), ("1%", 5), ("1.5m", 180), ("0.01m", 5)])
def test_the_steps_of_an_amount(run: Path, amount: str, steps: int) -> None:
    """60 steps in 30 seconds, after the first line of metrics; at least as many as checkpoints are averaged."""
    assert table2.steps_of(run, amount) == steps


@pytest.mark.parametrize("preset", [name for name in PRESETS if name.endswith("_small") or name == "multi30k"])
def test_settings_fit_every_small_preset(run: Path, preset: str) -> None:
    """The highest rate is the run's, and the last step is the last of the decay."""
    config: dict[str, Any] = resolve(TrainingConfig, {}, preset=preset).to_json()
    (run / "config.json").write_text(json.dumps({**config, "data": {}, "imports": []}), encoding="utf-8")
    (run / "settings.json").write_text(json.dumps(table2.settings(run, "400")), encoding="utf-8")
    found = resolve(TrainingConfig, {}, file=run / "settings.json")
    schedule = found["schedule"]
    assert schedule.decay_steps == found.training.max_steps == 400
    peak = schedule.learning_rate_scale * (found["model"].d_model * schedule.warmup_steps) ** -0.5
    assert peak == pytest.approx(SUMMARY["peak_learning_rate"])
    assert found["model"] == resolve(TrainingConfig, {}, preset=preset)["model"]


def test_settings_of_the_second_stage(run: Path) -> None:
    settings = table2.settings(run, "400", reward=True)
    assert settings["criterion"] == {"name": "expected_reward"}
    scale = settings["schedule"]["learning_rate_scale"]
    assert scale * (64 * settings["schedule"]["warmup_steps"]) ** -0.5 == pytest.approx(0.0002)
