"""How recipes start nmt train: on several processes and machines, under Slurm."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Bash = Callable[..., subprocess.CompletedProcess[str]]

# Runs train_everywhere with programs that print their arguments.
TRAIN = """
source "{recipes}/common.sh"
nmt=show python=show
show() {{ printf '%s ' "$@"; printf 'in %s\\n' "$PWD"; }}
train_everywhere data --out run --preset transformer_base "$@"
"""


@pytest.mark.parametrize("processes", [1, 3])
def test_training_on_one_machine(recipes: Path, tmp_path: Path, bash: Bash, processes: int) -> None:
    script = TRAIN.format(recipes=recipes)
    shown = bash("-c", script, "recipe", "--seed", "2", cwd=tmp_path, PROCESSES=str(processes)).stdout
    command = f"train {tmp_path}/data --out {tmp_path}/run --preset transformer_base --seed 2 in {tmp_path}\n"
    assert shown.endswith(command)
    assert (f"--nproc-per-node {processes} --standalone" in shown) == (processes > 1)


def test_training_on_several_machines(recipes: Path, tmp_path: Path, bash: Bash) -> None:
    script = TRAIN.format(recipes=recipes)
    first = {"PROCESSES": "8", "NNODES": "2", "NODE_RANK": "1"}
    shown = bash("-c", script, "recipe", cwd=tmp_path, MASTER_ADDR="first", **first).stdout
    assert "--nproc-per-node 8 --nnodes 2 --max-restarts 3 --rdzv-backend c10d --rdzv-id nmt " in shown
    assert " --rdzv-endpoint first:29500 --rdzv-conf is_host=0 " in shown
    assert "MASTER_ADDR" in bash("-c", script, "recipe", cwd=tmp_path, code=2, **first).stderr


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


@pytest.mark.parametrize(
    ("arguments", "model"), [(["--model", "big"], "big"), (["--", "--model", "universal"], "base")]
)
def test_slurm_runs_each_part_where_it_should(
    recipes: Path, tmp_path: Path, bash: Bash, arguments: list[str], model: str
) -> None:
    for name, script in PROGRAMS.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)
    job = {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "32"}
    job["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = bash(recipes / "slurm" / "wmt14_en_de.sbatch", *arguments, cwd=tmp_path, **job)
    given = " ".join(arguments)
    assert done.stdout.split("\n")[:-1] == [
        f"32 cores, rank none of 2 at first: --to prepare {given}",
        f"32 cores, rank 1 of 2 at first: --from train-{model} --to train-{model} {given}",
        f"32 cores, rank none of 2 at first: --from average-{model} {given}",
    ]


# An nmt and a Python that finds $GPUS GPUs; nmt train stops there.
GPUS = {
    "bin/nmt": """#!{folder}/bin/python
train
""",
    "bin/python": """#!/bin/bash
case "$*" in
  *device_count*) echo "$GPUS" ;;
  *--dry-run*) ;;
  *distributed.run* | *"nmt train"*) echo "$PWD: $*" >"{folder}/trained"; exit 9 ;;
  *) exec {python} "$@" ;;
esac
""",
}


@pytest.fixture
def with_gpus(recipes: Path, tmp_path: Path, bash: Bash) -> Bash:
    """Runs a recipe, in a checkout of its own, on a machine with `gpus` GPUs; its earlier stages are done."""
    shutil.copytree(recipes, tmp_path / "checkout" / "recipes")
    for name, text in GPUS.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("{folder}", str(tmp_path)).replace("{python}", sys.executable), encoding="utf-8")
        path.chmod(0o755)

    def run(script: str, *arguments: str, gpus: int, code: int) -> subprocess.CompletedProcess[str]:
        for stage in ("smoke", "download", "extract", "prepare"):
            record = tmp_path / "out" / "stages" / stage
            record.parent.mkdir(parents=True, exist_ok=True)
            record.touch()
        given = (tmp_path / "checkout" / "recipes" / script, "--out", tmp_path / "out", *arguments)
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return bash(*given, code=code, PATH=path, GPUS=str(gpus))

    return run


TRAIN_BASE = ("--from", "train-base", "--to", "train-base")


@pytest.mark.parametrize(
    ("arguments", "gpus", "code"),
    [
        (TRAIN_BASE, 0, 2),
        ((*TRAIN_BASE, "--smoke-gpu"), 0, 2),
        (TRAIN_BASE, 1, 9),
        ((*TRAIN_BASE, "--smoke"), 0, 9),
        ((*TRAIN_BASE, "--", "--device", "cpu"), 0, 9),
        ((*TRAIN_BASE, "--", "--device=cpu"), 0, 9),
    ],
)
def test_the_full_size_is_not_trained_on_a_cpu_by_accident(
    with_gpus: Bash, tmp_path: Path, arguments: tuple[str, ...], gpus: int, code: int
) -> None:
    shown = with_gpus("wmt14_en_de.sh", *arguments, gpus=gpus, code=code).stderr
    assert (tmp_path / "trained").exists() == (code == 9)
    assert ("train-base needs a GPU" in shown) == (code == 2)


def test_a_smoke_test_of_the_gpus_trains_the_model_itself_on_all_of_them(with_gpus: Bash, tmp_path: Path) -> None:
    with_gpus("wmt14_en_de.sh", *TRAIN_BASE, "--smoke-gpu", gpus=4, code=9)
    command = (tmp_path / "trained").read_text(encoding="utf-8")
    assert "--nproc-per-node 4 --standalone -m nmt_cli train" in command
    assert "--preset transformer_base --warmup-steps 40 --max-steps 100 " in command
    assert "--d-model" not in command
    assert "--device" not in command
