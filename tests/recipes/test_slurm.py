"""The example for Slurm, with an srun that only runs what it is given, and a recipe that shows how it is called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

RECIPE = """#!/bin/sh
echo "$SRUN_CPUS_PER_TASK cores, rank ${NODE_RANK-none} of $NNODES at $MASTER_ADDR:" "$@"
"""
SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
SLURM_NODEID=1 "$@"
"""
SCONTROL = """#!/bin/sh
printf 'first\nsecond\n'
"""


def submit(recipes: Path, folder: Path, *arguments: str) -> list[str]:
    """How the recipe is called."""
    for name, script in (("recipes/wmt14_en_de.sh", RECIPE), ("bin/srun", SRUN), ("bin/scontrol", SCONTROL)):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)
    job = {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "32"}
    done = subprocess.run(
        ["bash", str(recipes / "slurm" / "wmt14_en_de.sbatch"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **job, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_each_part_runs_where_it_should_with_the_cores_of_the_job(recipes: Path, tmp_path: Path) -> None:
    assert submit(recipes, tmp_path, "--model", "big") == [
        "32 cores, rank none of 2 at first: --to prepare --model big",
        "32 cores, rank 1 of 2 at first: --from train-big --to train-big --model big",
        "32 cores, rank none of 2 at first: --from average-big --model big",
    ]


def test_what_follows_the_dashes_is_for_nmt_train(recipes: Path, tmp_path: Path) -> None:
    assert submit(recipes, tmp_path, "--", "--model", "universal")[1].endswith(
        "--from train-base --to train-base -- --model universal"
    )
