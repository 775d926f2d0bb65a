"""Table 2's recipe: its stages, with programs that only write the files of a training.

Its settings. Its table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import table2

from nmt_cli.config import resolve
from nmt_cli.presets import PRESETS
from nmt_cli.registry import build, discover
from nmt_cli.training.settings import TrainingConfig

discover()

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
    {"step": 80, "training_seconds": 50.0, "lr": 4e-4},
]
SUMMARY = {"steps": 80, "training_hours": 0.5, "flops": 1e15, "flops_as_table2": 2e15}


def write_run(run: Path) -> None:
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (run / "metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in METRICS), encoding="utf-8"
    )
    (run / "summary.json").write_text(json.dumps(SUMMARY), encoding="utf-8")


Recipe = Callable[..., CompletedProcess[str]]
Calls = Callable[[], list[str]]


@pytest.fixture
def recipe(dry: Recipe, tmp_path: Path) -> Recipe:
    """Runs table2.sh, with results in out."""
    write_run(tmp_path / "run")
    for name in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de", "fr"):
            (tmp_path / f"{name}.{language}").write_text("a\nb\n", encoding="utf-8")
    return lambda *arguments, **more: dry(
        "table2.sh", "--out", "out", *arguments, PROCESSES="1", **more
    )


def of_command(name: str, calls: list[str]) -> list[str]:
    """The arguments of the calls of this command of nmt."""
    return [call.removeprefix(f"{name} ") for call in calls if call.startswith(f"{name} ")]


def by_column(rows: dict[str, list[str]]) -> dict[str, dict[str, str]]:
    """The cells of each row by the names of their columns."""
    header, _, *body = rows
    return {name: dict(zip(rows[header], rows[name], strict=True)) for name in body}


def test_small_systems_get_the_same_time_and_a_table(
    recipe: Recipe, calls: Calls, tmp_path: Path, rows_of: Callable[[str], dict[str, list[str]]]
) -> None:
    command = ("--multi30k", ".", "--systems", "gnmt*2 deep_att", "--minutes", "5")
    done = recipe(*command)
    recorded = calls()
    trainings = of_command("train", recorded)
    assert trainings[0].startswith(
        "out/data --out out/gnmt/trial --preset gnmt_small --max-steps 80 "
    )
    assert trainings[1] == "out/data --out out/gnmt/run --config out/gnmt/settings.json"
    assert trainings[2].startswith(
        "out/data --out out/gnmt_rl/trial --init-from out/gnmt/averaged --config out/gnmt_rl/"
    )
    assert " --batch-tokens 256 --max-steps 16 --log-every 4 " in trainings[2]
    reward = "--config out/gnmt_rl/settings.json"
    assert trainings[3] == f"out/data --out out/gnmt_rl/run --init-from out/gnmt/averaged {reward}"
    assert trainings[4] == "out/data --out out/gnmt-2/run --config out/gnmt/settings.json --seed 2"
    assert (
        trainings[5]
        == f"out/data --out out/gnmt_rl-2/run --init-from out/gnmt-2/averaged {reward} --seed 2"
    )
    assert [line.split()[0] for line in trainings[6:]] == ["out/data-words"] * 2
    # Two steps a second in the trial.
    steps = {
        name: json.loads((tmp_path / "out" / name / "settings.json").read_text("utf-8"))[
            "training"
        ]["max_steps"]
        for name in ("gnmt", "gnmt_rl", "deep_att")
    }
    assert steps == {"gnmt": 480, "gnmt_rl": 120, "deep_att": 600}
    translations = of_command("translate", recorded)
    assert translations[4].startswith(
        "out/gnmt_rl/averaged out/gnmt_rl-2/averaged --input out/data/test.source.txt "
    )
    assert ["--replace-unknown" in call for call in translations] == [False] * 5 + [True]
    assert {call.split(" --last ")[1].split()[0] for call in of_command("average", recorded)} == {
        "5"
    }

    table = by_column(rows_of(done.stdout))
    assert list(table) == [
        "GNMT, before RL",
        "GNMT + RL",
        "Deep-Att + PosUnk",
        "GNMT + RL, ensemble",
    ]
    assert table["GNMT + RL"]["BLEU, paper"] == "24.60"
    assert table["GNMT + RL"]["BLEU, here"] == "38.50 ± 0.00"
    assert table["GNMT + RL"]["minutes"] == "60.0"  # of both trainings
    # Of two models with two trainings each.
    assert table["GNMT + RL, ensemble"]["FLOPs, counted"] == "4.0e+15"
    assert table["Deep-Att + PosUnk"]["sentences/s"] == "12.5"

    assert recipe(*command).stdout == done.stdout
    # They have ended.
    assert of_command("train", calls()) == [
        call for call in trainings if "gnmt_rl/trial" not in call
    ]


def test_systems_of_the_papers_size(recipe: Recipe, calls: Calls, tmp_path: Path) -> None:
    (tmp_path / "out" / "text").mkdir(parents=True)
    recipe("--target", "fr", "--systems", "bytenet gnmt convs2s*2 big", "--", "--seed", "3")
    recorded = calls()
    trainings = of_command("train", recorded)
    assert [call.split(" --preset ")[-1] for call in trainings if "gnmt_rl" not in call] == [
        "bytenet_paper --keep-last 1 --device cuda --seed 3",
        "gnmt_paper_en_fr --keep-last 1 --device cuda --seed 3",
        "convs2s_paper_en_fr --keep-last 1 --device cuda --seed 3",
        "convs2s_paper_en_fr --keep-last 1 --device cuda --seed 3 --seed 2",
        "transformer_big_en_fr --device cuda --seed 3",  # as in wmt14_en_fr.sh
    ]
    assert trainings[0].startswith("out/data-characters --out out/bytenet/run ")
    averaged = [call.split(" --last ")[1].split()[0] for call in of_command("average", recorded)]
    assert averaged == ["1", "1", "1", "1", "1", "20"]
    characters = of_command("prepare", recorded)[1]
    assert "giga-fren" in characters
    assert characters.endswith("--subwords character --vocab-size 400 --out out/data-characters")
    translations = of_command("translate", recorded)
    assert "--max-length-offset 200" in translations[0]
    assert translations[5].startswith("out/convs2s/averaged out/convs2s-2/averaged ")
    steps = json.loads((tmp_path / "out/gnmt_rl/settings.json").read_text("utf-8"))["training"][
        "max_steps"
    ]
    assert steps == 8  # a tenth of GNMT's 80


def test_moe_must_be_named_at_full_size() -> None:
    assert table2.items("full", "") == "bytenet*1 deep_att*1 gnmt*1 convs2s*1 base*1 big*1"
    assert table2.items("small", "base*3 moe") == "base*3 moe*1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--systems", "rnn"), "rnn"),
        (("--systems", "base*0"), "base"),
        (("--systems", "base moe base*2"), "twice"),
        (("--minutes", "30"), "--multi30k"),
        (("--multi30k", ".", "--minutes", "half"), "half"),
        (("--multi30k", ".", "--systems", "big"), "big"),
    ],
)
def test_wrong_arguments(
    recipe: Recipe, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in recipe(*arguments, code=2).stderr
    assert not (tmp_path / "out").exists()


def test_flags_that_do_not_suit_all_systems_are_rejected_at_once(
    recipe: Recipe, calls: Calls
) -> None:
    command = ("--multi30k", ".", "--systems", "base convs2s", "--", "--num-layers", "1")
    recipe(*command, code=2, REFUSED="convs2s_small --num-layers")
    assert calls() == []


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("amount", "steps"), [("400", 400), ("10%", 8), ("1%", 5), ("1.5m", 180), ("0.01m", 5)]
)
def test_the_steps_of_an_amount(run: Path, amount: str, steps: int) -> None:
    """60 steps in 30 seconds, after the first line of metrics.

    At least as many as checkpoints are averaged.
    """
    assert table2.steps_of(run, amount) == steps


@pytest.mark.parametrize(
    "preset", [name for name in PRESETS if name.endswith("_small") or name == "multi30k"]
)
def test_settings_fit_every_small_preset(run: Path, preset: str) -> None:
    """The highest rate is the preset's, and the last step is the last of the decay."""
    config = resolve(TrainingConfig, {}, preset=preset)
    (run / "config.json").write_text(
        json.dumps({**config.to_json(), "data": {}, "imports": []}), encoding="utf-8"
    )
    (run / "settings.json").write_text(json.dumps(table2.settings(run, "400")), encoding="utf-8")
    resolved = resolve(TrainingConfig, {}, file=run / "settings.json")
    schedule = resolved["schedule"]
    assert schedule.decay_steps == resolved.training.max_steps == 400
    peak = (
        schedule.learning_rate_scale * (resolved["model"].d_model * schedule.warmup_steps) ** -0.5
    )
    schedule = build(config["schedule"], d_model=config["model"].d_model)
    assert peak == pytest.approx(max(map(schedule, range(1, 10_000))))
    assert resolved["model"] == config["model"]


def test_settings_of_the_second_stage(run: Path) -> None:
    settings = table2.settings(run, "400", reward=True)
    assert settings["criterion"] == {"name": "expected_reward"}
    scale = settings["schedule"]["learning_rate_scale"]
    assert scale * (64 * settings["schedule"]["warmup_steps"]) ** -0.5 == pytest.approx(
        0.1 * (64 * 1000) ** -0.5
    )
