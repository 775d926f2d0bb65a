"""A command for each part of a corpus, by Slurm and by Ray: the parts are prepared and trained on as one corpus."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from numbers_below_1000 import name

Bash = Callable[..., Any]
Run = Callable[..., tuple[int, str, str]]
LANGUAGES = ["--source-lang", "en", "--target-lang", "de"]
NMT = [sys.executable, "-m", "nmt_cli"]


def by_slurm(bash: Bash, recipes: Path, folder: Path, *words: str) -> None:
    for task in ("1", "2"):
        bash(recipes / "slurm" / "parts.sbatch", *words, cwd=folder, SLURM_ARRAY_TASK_ID=task)


def by_ray(bash: Bash, recipes: Path, folder: Path, *words: str) -> None:
    if find_spec("ray") is None:
        pytest.skip("needs ray: pip install 'nmt-cli[ray]'")
    bash("-c", 'exec "$@"', "_", sys.executable, recipes / "ray_parts.py", "01-02", *words, cwd=folder)


@pytest.mark.parametrize("by", [by_slurm, by_ray])
def test_parts_are_prepared_once_and_trained_on_together(
    by: Any, bash: Bash, recipes: Path, nmt: Run, tmp_path: Path
) -> None:
    for number in range(3):
        for language in ("en", "de"):
            lines = (f"{name(n, language)}\n" for n in range(number, 300, 3))
            (tmp_path / f"part-0{number}.{language}").write_text("".join(lines), encoding="utf-8")
    first = tmp_path / "data-00"
    assert nmt("prepare", *LANGUAGES, "--train", tmp_path / "part-00", "--vocab-size", 60, "--out", first)[0] == 0
    words = ["data-{}", *NMT, "prepare", *LANGUAGES, "--train", "part-{}", "--subwords-from", "data-00"]
    by(bash, recipes, tmp_path, *words, "--workers", "1", "--out", "data-{}")
    by(bash, recipes, tmp_path, "data-{}", "false")  # nothing is missing
    code, out, err = nmt("train", *sorted(tmp_path.glob("data-*")), "--dry-run", "--json", "--num-layers", 1)
    assert code == 0, err
    assert json.loads(out)["sentences"] == 300
