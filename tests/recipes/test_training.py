"""Training in recipes: several processes, several machines, Slurm, and no CPU by accident."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Bash = Callable[..., subprocess.CompletedProcess[str]]
Calls = Callable[[], list[str]]


@pytest.mark.parametrize(
    ("machine", "launcher"),
    [
        ({"GPUS": "1"}, ""),
        ({"GPUS": "4"}, "torchrun.py --nproc-per-node 4 --standalone -m nmt_cli "),
        (
            {"GPUS": "4", "PROCESSES": "3"},
            "torchrun.py --nproc-per-node 3 --standalone -m nmt_cli ",
        ),
    ],
)
def test_one_machine(dry: Bash, calls: Calls, machine: dict[str, str], launcher: str) -> None:
    dry("train.sh", "data", "--out", "run", STOP="train", code=9, **machine)
    [call] = calls()
    assert call.endswith(f"{launcher}train data --out run")
    assert ("torchrun" in call) == bool(launcher)


def test_an_error_in_several_processes_is_shown_once(
    recipes: Path, bash: Bash, tmp_path: Path
) -> None:
    done = bash(
        recipes / "train.sh",
        tmp_path,
        "--out",
        tmp_path / "run",
        "--bad-flag",
        code=2,
        PROCESSES="2",
    )
    assert done.stderr.count("nmt: ") == 1


def test_several_machines(dry: Bash, calls: Calls) -> None:
    first = {"PROCESSES": "8", "NNODES": "2", "NODE_RANK": "1", "STOP": "train"}
    dry(
        "train.sh",
        "data",
        "--out",
        "run",
        code=9,
        MASTER_ADDR="first",
        TORCHRUN_FLAGS="--local-addr 1.2.3.4",
        **first,
    )
    [call] = calls()
    assert (
        "--nproc-per-node 8 --nnodes 2 --max-restarts 3 --rdzv-backend c10d --rdzv-id nmt " in call
    )
    assert (
        " --rdzv-endpoint first:29500 --rdzv-conf is_host=0 --local-addr 1.2.3.4 -m nmt_cli train"
        in call
    )
    assert "MASTER_ADDR" in dry("train.sh", "data", code=2, **first).stderr


def test_another_machine_shares_the_training_only(dry: Bash, calls: Calls, tmp_path: Path) -> None:
    second = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "first", "PROCESSES": "1"}
    command = ("wmt14_en_de.sh", "--smoke-gpu", "--out", "out")
    assert "--data-only" in dry(*command, code=2, **second).stderr
    dry(*command, "--data-only")
    assert [call.split()[0] for call in calls()] == ["prepare"]
    dry(*command, **second)
    [call] = calls()
    assert "torchrun.py" in call


def test_a_smoke_test_of_the_gpus_trains_the_model_itself_on_all_of_them(
    dry: Bash, calls: Calls
) -> None:
    dry(
        "wmt14_en_fr.sh",
        "--smoke-gpu",
        "--model",
        "big",
        "--out",
        "out",
        GPUS="4",
        STOP="train",
        code=9,
    )
    prepare, train = calls()
    assert " --train out/text/giga-fren " in prepare
    assert " --subwords wordpiece " in prepare
    assert "--nproc-per-node 4 --standalone -m nmt_cli train out/data --out out/big/run " in train
    assert (
        "--preset transformer_big_en_fr --device cuda --warmup-steps 40 --max-steps 100 " in train
    )
    assert "--d-model" not in train


def test_a_cpu_ends_a_recipe_of_hours_at_once(recipes: Path, bash: Bash, tmp_path: Path) -> None:
    bash(recipes / "wmt14_en_de.sh", "--out", tmp_path / "out", code=2, CUDA_VISIBLE_DEVICES="")
    assert not (tmp_path / "out").exists()


# Slurm's commands, and a recipe that prints how it is called.
PROGRAMS = {
    "recipes/wmt14_en_de.sh": """#!/bin/sh
echo "$SRUN_CPUS_PER_TASK cores, rank ${NODE_RANK-none} of $NNODES at $MASTER_ADDR:" "$@"
""",
    "bin/srun": """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
SLURM_NODEID=1 "$@"
""",
    "bin/scontrol": "#!/bin/sh\nprintf 'first\\nsecond\\n'\n",
}


def test_slurm_runs_each_part_where_it_should(recipes: Path, tmp_path: Path, bash: Bash) -> None:
    for name, script in PROGRAMS.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)
    job = {
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "x",
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_PER_TASK": "32",
    }
    job["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = bash(recipes / "slurm" / "wmt14_en_de.sbatch", "--model", "big", cwd=tmp_path, **job)
    assert done.stdout.split("\n")[:-1] == [
        "32 cores, rank none of 2 at first: --data-only --model big",
        "32 cores, rank 1 of 2 at first: --model big",
    ]
