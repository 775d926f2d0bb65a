"""What the doctor adds to a dry run: memory, disk space and FLOPs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_run import SIZES, words

Nmt = Callable[..., tuple[int, str, str]]
TINY = SIZES | {"batch_tokens": 500, "max_epochs": 3}


@pytest.mark.parametrize("average", [(), ("--ema-decay", 0.9)])
def test_the_disk_space_of_a_dry_run_is_that_of_the_run(
    average: tuple[Any, ...], nmt: Nmt, tiny_data: Path, tmp_path: Path
) -> None:
    """At most, and with the best checkpoint apart from the last ones nearly.

    A checkpoint of Adam is 12 bytes each.
    """
    settings = TINY | {
        "d_model": 128,
        "num_heads": 4,
        "max_steps": 6,
        "save_every": 2,
        "keep_last": 1,
    }
    given = (*words(settings), *average)
    figures = json.loads(nmt("train", tiny_data, "--dry-run", "--json", "--device=cpu", *given)[1])
    assert figures["checkpoint_bytes"] == (16 if average else 12) * figures["parameters"]
    assert figures["disk_bytes"] == 3 * figures["checkpoint_bytes"]
    assert (
        nmt(
            "train",
            tiny_data,
            "--device=cpu",
            *given,
            "--validate-every=5",
            "--out",
            tmp_path / "run",
        )[0]
        == 0
    )
    folders = sorted((tmp_path / "run" / "checkpoints").iterdir())
    assert [folder.name for folder in folders] == ["best-00000005", "step-00000006"]
    for folder in folders:
        size = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
        assert size == pytest.approx(figures["checkpoint_bytes"], rel=0.05)


def test_the_memory_of_a_process(nmt: Nmt) -> None:
    """Weights, gradients and Adam's moments are 16 bytes a parameter.

    8,589,934,592 are of experts.
    """

    def size(processes: int) -> tuple[int, Any]:
        code, out, _ = nmt("train", "--dry-run", "--json", *flags, "--processes", processes)
        return code, code or json.loads(out)["bytes_per_process"] / 16

    flags = ("--preset", "moe_paper", "--vocab-size", 32_000)
    (_, one), (_, eight) = size(1), size(8)
    assert one - eight == 7 * 8_589_934_592 / 8
    assert 16 * eight < 19e9
    assert size(3)[0] == 2


def test_the_operations_of_an_update_with_a_number_of_sentences(nmt: Nmt) -> None:
    def operations(*flags: object) -> float:
        _, out, _ = nmt(
            "train", "--dry-run", "--json", "--preset", "quickstart", "--vocab-size", 100, *flags
        )
        return float(json.loads(out)["training_step_flops"]["total"])

    assert operations("--batch-sentences", 20) == 2 * operations("--batch-sentences", 10)
    assert operations("--batch-sentences", 2000) == operations()


def test_the_memory_of_the_largest_micro_batch(nmt: Nmt, tiny_data: Path) -> None:
    command = ("train", tiny_data, "--dry-run", "--device=cpu", *words(TINY))
    figures = json.loads(nmt(*command, "--json")[1])
    assert 1e7 < figures["peak_memory_bytes"] < 1e11
    assert figures["micro_batches"] >= 1
    table = nmt(*command)[1]
    assert all(
        label in table
        for label in ("peak memory", "GB (of the whole process)", "GB without activations")
    )
    assert "bytes" not in table
