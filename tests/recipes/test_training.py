"""How recipes start nmt train: on several processes and machines, under Slurm."""

from __future__ import annotations

import os
import subprocess
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
    assert "--nproc-per-node 8 --nnodes 2 --node-rank 1 --master-addr first --master-port 29500" in shown
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
