"""The clock of a training to a BLEU: which validation counts, and the end of the training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import time_to_bleu
from number_names import write_corpus

Bash = Callable[..., CompletedProcess[str]]
TINY = "--num-layers 1 --d-model 16 --d-ff 16 --batch-tokens 200 --validate-every 2".split()


def test_the_first_validation_with_the_bleu_counts(tmp_path: Path) -> None:
    assert time_to_bleu.first_with(tmp_path, 0.0) is None
    bleu = {10: 3.5, 20: 24.99, 30: 25.0, 40: 26.0}
    lines = [{"step": step, "validation_bleu-lc": bleu[step]} for step in bleu]
    text = "".join(f"{json.dumps(line)}\n" for line in [{"step": 5}, *lines])
    (tmp_path / "metrics.jsonl").write_text(text + '{"step": 50, "valid', encoding="utf-8")
    line = time_to_bleu.first_with(tmp_path, 25.0)
    assert line is not None
    assert line["step"] == 30
    assert time_to_bleu.first_with(tmp_path, 26.5) is None


def test_the_training_ends_at_the_bleu(recipes: Path, bash: Bash, tmp_path: Path) -> None:
    write_corpus(tmp_path, "en", "de", train=2000, valid=5, test=1)
    for side in ("en", "de"):
        (tmp_path / f"valid.{side}").rename(tmp_path / f"val.{side}")
    flags = (recipes / "time_to_bleu.sh", "--smoke", tmp_path, "--bleu", "0", "--out", "out")
    more = ("--", *TINY, "--save-every", "1000")
    done = bash(*flags, *more, cwd=tmp_path, PROCESSES="1")
    assert "stopped by SIGTERM" in done.stderr
    table = dict(line.strip("| ").split(" | ", 1) for line in done.stdout.split("\n")[:-1])
    rows = {name.strip(): value.split("|")[-1].strip() for name, value in table.items()}
    assert (rows["updates"], rows["devices"]) == ("2", "1")
    assert (tmp_path / "out/table.md").read_text(encoding="utf-8") == done.stdout
    assert "a whole training" in bash(*flags, cwd=tmp_path, code=2).stderr


def test_a_training_without_the_bleu(dry: Bash, tmp_path: Path) -> None:
    done = dry("time_to_bleu.sh", "--smoke", ".", "--out", "out", code=1)
    assert "no validation had 20 BLEU" in done.stderr
    assert not (tmp_path / "out/table.md").exists()
