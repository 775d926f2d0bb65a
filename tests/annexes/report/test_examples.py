"""Outputs of the same sentences at each validation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_run
import torch

from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.annexes.report.examples import Examples, ExamplesConfig
from nmt_cli.data.corpus import Corpus
from nmt_cli.distributed import World
from nmt_cli.errors import UsageError
from nmt_cli.training.validation import greedy_outputs
from nmt_cli.weights import load_model

Nmt = Callable[..., tuple[int, str, str]]
run = partial(tiny_run.run, max_steps=10, save_every=2)


def test_examples_are_shown_and_recorded(
    nmt: Nmt, tiny_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """At each validation, the same sentences, without a score of the others.

    A stopped run has the same ones.
    """
    run(tiny_data, tmp_path / "run", show=2, max_steps=4)
    shown = capfd.readouterr().err
    records = [
        record for record in tiny_run.metrics(tmp_path / "run") if "validation_loss" in record
    ]
    assert [record["step"] for record in records if "validation_bleu" not in record] == [2, 4]
    first, last = ([example["source"] for example in record["examples"]] for record in records)
    valid = Corpus.open(tiny_data, "valid").raw_lines("source")
    assert first == last == [valid[0], valid[len(valid) // 2]]
    for example in records[1]["examples"]:
        lines = [f"  source:    {example['source']}", f"  reference: {example['reference']}"]
        assert "\n".join([*lines, f"  output:    {example['output']}"]) in shown
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in last))
    code, out, err = nmt("translate", tmp_path / "run", "--beam", 1, "--input", tmp_path / "source")
    assert code == 0, err
    assert out.splitlines() == [example["output"] for example in records[1]["examples"]]
    run(tiny_data, tmp_path / "parts", show=2, max_steps=2)
    run(tiny_data, tmp_path / "parts", show=2, max_steps=4)
    assert contents(tmp_path / "parts") == contents(tmp_path / "run")


def test_examples_are_lines_at_equal_distances(tiny_checkpoint: Path, tiny_data: Path) -> None:
    """With the outputs that they have among all lines. There are no more than lines."""
    model, task = load_model(tiny_checkpoint)
    world, valid = World(0, 1, torch.device("cpu")), Corpus.open(tiny_data, "valid")
    config = SimpleNamespace(model_parallel=False)
    run: Any = SimpleNamespace(model=model, task=task, valid=valid, world=world, config=config)
    sources = valid.raw_lines("source")
    outputs = greedy_outputs(model, task, sources, world)
    every = [
        {"source": source, "reference": reference, "output": output}
        for source, reference, output in zip(
            sources, valid.raw_lines("target"), outputs, strict=True
        )
    ]
    count = len(every)
    for wanted, chosen in (
        (2, [0, count // 2]),
        (3, [0, count // 3, 2 * count // 3]),
        (count + 1, range(count)),
    ):
        assert Examples(ExamplesConfig(wanted), run).validated() == {
            "examples": [every[i] for i in chosen]
        }


def test_it_needs_a_validation_set(unvalidated_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--show: .*nmt prepare .*--valid"):
        run(unvalidated_data, tmp_path / "run", show=2)
    assert not (tmp_path / "run").exists()
