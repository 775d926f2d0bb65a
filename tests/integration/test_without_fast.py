"""Without nmt_cli/fast, everything still runs: the losses, the outputs, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_run
import torch
from numbers_below_1000 import name as name_of

import nmt_cli
from nmt_cli import checkpoint
from nmt_cli.criteria.label_smoothed_cross_entropy import smoothed_cross_entropy
from nmt_cli.data.batching import default_micro_batches
from nmt_cli.device import Plain

Nmt = Callable[..., subprocess.CompletedProcess[str]]
EXACT = {"dropout": 0.0, "max_steps": 30, "log_every": 1, "save_every": 30, "precision": "float32"}


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package without the directory."""
    folder = tmp_path_factory.mktemp("without")
    source = Path(nmt_cli.__file__).parent
    shutil.copytree(source, folder / "nmt_cli", ignore=shutil.ignore_patterns("fast", "*.pyc.*"))
    # The finder of an editable installation would find the original.
    (folder / "nmt_cli" / "fast.py").write_text(
        "raise ModuleNotFoundError(__name__, name=__name__)\n"
    )
    return folder


def test_losses_and_outputs_are_the_same(
    nmt: Nmt, without: Path, tiny_data: Path, tmp_path: Path
) -> None:
    records, outputs = [], []
    for name, place in (("with", {}), ("without", {"PYTHONPATH": str(without)})):
        nmt("train", tiny_data, "--out", tmp_path / name, *tiny_run.flags(**EXACT), **place)
        records.append(tiny_run.metrics(tmp_path / name))
        computed_by = checkpoint.read_contents(checkpoint.locate(tmp_path / name)).computed_by
        assert computed_by == ("plain on cpu" if place else "fast on cpu")
        lines = tmp_path / "lines"
        lines.write_text("".join(f"{name_of(n, 'en')}\n" for n in range(5, 995, 33)))
        outputs.append(
            nmt("translate", tmp_path / "with", "-i", lines, "--workers", 1, **place).stdout
        )
    assert len(records[0]) == 30
    for with_fast, without_fast in zip(*records, strict=True):
        assert without_fast["loss"] == pytest.approx(with_fast["loss"], rel=1e-5)
        assert without_fast["gradient_norm"] == pytest.approx(with_fast["gradient_norm"], rel=1e-3)
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 30
    refused = nmt("translate", tmp_path / "with", "--dtype", "int8", "-i", lines, code=2, **place)
    assert "--dtype int8 needs nmt_cli.fast" in refused.stderr


def test_micro_batches_of_the_paper_fit() -> None:
    """The logits of a large vocabulary and their gradient are less than a gigabyte."""
    plain = Plain(torch.device("cpu"))
    limit = plain.sizes.batch_tokens
    assert -(-25_000 // default_micro_batches(25_000, 1, limit)) <= limit == 2048
    hidden = torch.randn(limit, 8, requires_grad=True)
    weight = torch.randn(37_000, 8, requires_grad=True)
    total, _ = smoothed_cross_entropy(hidden, weight, torch.arange(limit) + 4, 0.1)
    total.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert weight.grad.isfinite().all()
