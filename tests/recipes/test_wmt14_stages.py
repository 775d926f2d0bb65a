"""What the recipes for WMT14 hand to their stages, and how they train on several processes: nothing runs in earnest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import micro_batches
import pytest

# Shows how the stages that read the table are called.
SHOW_STAGES = """
source "{recipes}/wmt14_stages.sh"
python="{python}" wmt14_table="{table}"
wmt14_define() {{ prepare_flags=("$@"); }}
wmt14_define --subwords bpe
wmt14_data_stages
for name in "${{stage_names[@]}}"; do printf '%s: %s\\n' "$name" "${{stage_command[$name]}}"; done
nmt=echo out="{folder}"
eval "${{stage_command[prepare]}}"
"""

# Trains with programs that only show how they are called. As many micro-batches as processes, where there are several.
TRAIN = """
source "{recipes}/wmt14_stages.sh"
nmt=echo python=show out="{folder}" stage_state=new
show() {{ if [[ "$1" == */micro_batches.py ]]; then printf '%s' "$2"; else printf '%s ' "$@" && printf '\\n'; fi; }}
[[ "$PROCESSES" != 1 ]] || python="{python}"
train_model base --preset transformer_base "$@"
"""


def shell(script: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "-c", script, "recipe", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_the_table_says_is_a_setting_of_the_stages_that_read_it(recipes: Path, tmp_path: Path) -> None:
    table = json.loads((recipes / "wmt14_en_de.json").read_text(encoding="utf-8"))
    path = tmp_path / "table.json"
    shown = []
    for _ in range(2):
        path.write_text(json.dumps(table), encoding="utf-8")
        script = SHOW_STAGES.format(recipes=recipes, python=sys.executable, table=path, folder=tmp_path)
        shown.append(shell(script).split("\n"))
        table["archives"][0]["checksum"] = "sha256:00"
        table["corpora"][0]["lines"] += 1
    assert [line.partition(":")[0] for line in shown[0][:3]] == ["download", "extract", "prepare"]
    assert [one == other for one, other in zip(shown[0][:3], shown[1][:3], strict=True)] == [False, False, True]
    assert shown[0][3].endswith("--keep-duplicates --subwords bpe --out data")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that was begun with twelve micro-batches."""
    path = tmp_path / "base" / "run"
    path.mkdir(parents=True)
    (path / "config.json").write_text('{"training": {"micro_batches": 12}}', encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("processes", "usual", "number"),
    [
        (1, 8, None),
        (2, 8, None),
        (8, 8, None),
        (16, 8, 16),
        (3, 8, 9),
        (6, 8, 12),
        (12, 8, 12),
        (2, 1, 2),
        (32, 16, 32),
    ],
)
def test_a_new_run_has_micro_batches_that_its_processes_share_evenly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, usual: int, number: int | None
) -> None:
    monkeypatch.setattr(micro_batches, "usual_number", lambda flags: usual)
    assert micro_batches.needed(processes, tmp_path / "run", ["--seed", "2"]) == number


def test_a_run_keeps_its_number_and_the_user_has_the_last_word(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batches, "usual_number", lambda flags: 8)
    for processes in (1, 8, 16):
        assert micro_batches.needed(processes, run, []) == 12
        assert micro_batches.needed(processes, run, ["--micro-batches", "24"]) is None
        assert micro_batches.needed(processes, run, ["--micro-batches=24"]) is None
    (run / "config.json").write_text('{"training": {"micro_batches": null}}', encoding="utf-8")
    assert micro_batches.needed(16, run, []) is None  # whether that can go on is for nmt train to say
    (run / "config.json").write_text("{", encoding="utf-8")
    assert micro_batches.needed(16, run, []) == 16


def test_the_usual_number_is_that_of_nmt_train(capfd: pytest.CaptureFixture[str]) -> None:
    assert micro_batches.usual_number(["--preset", "transformer_base"]) == 8
    assert micro_batches.usual_number(["--preset", "transformer_base", "--batch-tokens", "2048"]) == 2
    assert micro_batches.usual_number(["--preset", "quickstart"]) == 4
    with pytest.raises(SystemExit) as ended:
        micro_batches.usual_number(["--no-such-flag"])
    assert ended.value.code == 2
    assert "--no-such-flag" in capfd.readouterr().err


def test_training_is_given_the_number_it_needs(recipes: Path, tmp_path: Path, run: Path) -> None:
    script = TRAIN.format(recipes=recipes, python=sys.executable, folder=tmp_path)
    command = f"train {tmp_path}/data --out {run} --preset transformer_base --seed 2 --micro-batches"
    assert shell(script, "--seed", "2", PROCESSES="1") == f"{command} 12\n"
    several = {"PROCESSES": "8", "NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "first"}
    shown = shell(script, "--seed", "2", **several)
    assert "--nproc-per-node 8 --nnodes 2 --node-rank 1" in shown
    assert shown.endswith(f"{command} 16 \n")


def test_files_that_the_users_flags_name_are_looked_for_where_the_user_is(recipes: Path, tmp_path: Path) -> None:
    script = TRAIN.format(recipes=recipes, python=sys.executable, folder=tmp_path)
    script = script.replace("nmt=echo", "nmt=here").replace("\ntrain_model", "\nhere() { pwd; }\ntrain_model")
    assert shell(script, PROCESSES="1") == f"{Path.cwd()}\n"
