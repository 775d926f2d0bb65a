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


@pytest.mark.parametrize(
    ("processes", "run_has", "flags", "number"),
    [
        (1, None, (), None),
        (8, None, (), None),
        (3, None, (), 9),
        (12, None, (), 12),
        (16, None, (), 16),
        (16, None, ("--micro-batches=32",), None),
        (1, 16, (), 16),
        (8, 16, (), 16),
        (8, "null", (), None),
    ],
)
def test_micro_batches_can_be_shared_evenly_and_a_run_keeps_its_number(
    recipes: Path,
    tmp_path: Path,
    bash: Bash,
    processes: int,
    run_has: int | str | None,
    flags: tuple[str, ...],
    number: int | None,
) -> None:
    if run_has is not None:
        (tmp_path / "run").mkdir()
        text = f'{{\n  "training": {{\n    "micro_batches": {run_has},\n    "seed": 1\n  }}\n}}\n'
        (tmp_path / "run" / "config.json").write_text(text, encoding="utf-8")
    script = TRAIN.format(recipes=recipes)
    shown = bash("-c", script, "recipe", *flags, cwd=tmp_path, PROCESSES=str(processes)).stdout
    command = f"train {tmp_path}/data --out {tmp_path}/run --preset transformer_base "
    given = [*flags, *([] if number is None else ["--micro-batches", str(number)])]
    assert shown.endswith(command + "".join(f"{word} " for word in given) + f"in {tmp_path}\n")
    assert ("--standalone" in shown) == (processes > 1)


def test_training_on_several_machines(recipes: Path, tmp_path: Path, bash: Bash) -> None:
    script = TRAIN.format(recipes=recipes)
    first = {"PROCESSES": "8", "NNODES": "2", "NODE_RANK": "1"}
    shown = bash("-c", script, "recipe", cwd=tmp_path, MASTER_ADDR="first", **first).stdout
    assert "--nproc-per-node 8 --nnodes 2 --node-rank 1 --master-addr first --master-port 29500" in shown
    assert "--micro-batches 16" in shown
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
