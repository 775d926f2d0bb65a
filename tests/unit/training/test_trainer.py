"""The loop: it resumes bit for bit, skips what is not finite, keeps what it should, and stops in good order."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli import checkpoint, registry
from nmt_cli.commands.train import train
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.errors import Interrupted, TrainingError, UsageError
from nmt_cli.interfaces import Batch, Loss

TINY = {
    "num_layers": 1,
    "d_model": 16,
    "d_ff": 32,
    "num_heads": 2,
    "batch_tokens": 500,
    "micro_batches": 2,
    "warmup_steps": 20,
    "max_steps": 12,
    "save_every": 4,
    "log_every": 5,
    "device": "cpu",
}
TIMES = (
    "target_tokens_per_second",
    "source_tokens_per_second",
    "training_seconds",
    "flops_as_table2",
    "model_flop_utilisation",
)


@pytest.fixture(autouse=True)
def _components() -> None:
    registry.discover()


def run(data: Path, out: Path, **changes: Any) -> None:
    train(data, out, TINY | changes, None, None, [])


def weights(out: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load_weights(checkpoint.resolve(out))


def metrics(out: Path) -> list[dict[str, Any]]:
    """The lines of metrics without what depends on the clock."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMES and "cost" not in name} for line in lines]


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_loss_falls_and_metrics_say_so(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "run", max_steps=40, learning_rate_scale=0.5, save_every=40)
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines if line["step"] % 5 == 0] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.3
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        assert {"step", "loss", "lr", "target_tokens_per_second"} <= json.loads(line).keys()


def test_a_stopped_run_resumes_bit_for_bit(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "whole")
    run(tiny_data, tmp_path / "parts", max_steps=4)  # ends between two reports
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "best-00000004")
    run(tiny_data, tmp_path / "parts")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    whole, parts = metrics(tmp_path / "whole"), metrics(tmp_path / "parts")
    assert whole[-1] == parts[-1]
    assert [line["step"] for line in whole] == [line["step"] for line in parts]


def costs(out: Path) -> list[float]:
    return [json.loads(line)["flops_as_table2"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_what_was_spent_stays_spent_when_slower_devices_go_on(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "run", max_steps=4, sustained_tflops=1000.0, peak_tflops=1000.0)
    run(tiny_data, tmp_path / "run", sustained_tflops=0.001, peak_tflops=0.001)
    before, *after = costs(tmp_path / "run")
    seconds = [json.loads(line)["training_seconds"] for line in (tmp_path / "run/metrics.jsonl").open()]
    assert before == pytest.approx(seconds[0] * 1e15)
    assert after[-1] == pytest.approx(before + (seconds[-1] - seconds[0]) * 1e9, rel=1e-12)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["flops_as_table2"] == after[-1]
    assert summary["device_hours"] * 3600 == pytest.approx(seconds[-1])
    assert summary["model_flop_utilisation"] == pytest.approx(summary["flops"] / after[-1])


def test_a_checkpoint_that_knows_no_costs_counts_as_done_by_these_devices(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As checkpoints were before costs were summed: the run says so, and goes on."""
    run(tiny_data, tmp_path / "run", max_steps=4, sustained_tflops=1000.0, peak_tflops=1000.0)
    folder = tmp_path / "run" / "checkpoints" / "step-00000004"
    state = json.loads((folder / "training.json").read_text())
    del state["progress"]["spent"], state["progress"]["window"]["spent"]
    checksums = json.loads((folder / "checksums.json").read_text())
    checksums["training.json"] = hashlib.sha256(json.dumps(state).encode()).hexdigest()
    for name, content in (("training.json", state), ("checksums.json", checksums)):
        (folder / name).unlink()  # the best checkpoint shares the file
        (folder / name).write_text(json.dumps(content))
    capsys.readouterr()
    run(tiny_data, tmp_path / "run", max_steps=8, sustained_tflops=2.0, peak_tflops=2.0)
    assert "does not say what its steps cost" in capsys.readouterr().err
    seconds = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])["training_seconds"]
    assert costs(tmp_path / "run")[-1] == pytest.approx(seconds * 2e12)


def test_a_run_that_lost_its_last_checkpoint_repeats_the_steps_exactly(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "run")
    before, lines = weights(tmp_path / "run"), metrics(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000012")
    run(tiny_data, tmp_path / "run")
    assert same(before, weights(tmp_path / "run"))
    assert metrics(tmp_path / "run") == lines


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tiny_data, tmp_path / "run")
    before = weights(tmp_path / "run")
    damaged = tmp_path / "run" / "checkpoints" / "step-00000012" / "model.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.unlink()  # the best checkpoint shares the file
    damaged.write_bytes(content)
    capsys.readouterr()
    run(tiny_data, tmp_path / "run")
    assert same(before, weights(tmp_path / "run"))
    assert str(damaged) in capsys.readouterr().err


def test_different_seeds_differ_and_equal_ones_do_not(tiny_data: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(tiny_data, tmp_path / name, max_steps=2, seed=seed)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_only_the_last_checkpoints_and_the_best_stay(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "run", keep_last=2)
    assert [path.name for path in checkpoint.checkpoints_of(tmp_path / "run")] == ["step-00000008", "step-00000012"]
    validations = {
        line["step"]: line["validation_loss"] for line in metrics(tmp_path / "run") if "validation_loss" in line
    }
    best = min(validations, key=lambda step: validations[step])
    assert checkpoint.read_contents(tmp_path / "run" / "best").step == best


def test_patience_ends_a_run_that_no_longer_improves(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "run", max_steps=100, learning_rate_scale=0.0, patience=2, save_every=4)
    assert metrics(tmp_path / "run")[-1]["step"] == 12  # the first validation is the best; two more are not better


def test_other_settings_are_refused_by_name(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "run", max_steps=2)
    with pytest.raises(UsageError, match=r"--d-ff was 32, now 33; --batch-tokens was 500, now 600"):
        run(tiny_data, tmp_path / "run", batch_tokens=600, d_ff=33)
    run(tiny_data, tmp_path / "run", max_steps=3, log_every=1)  # these may change
    assert metrics(tmp_path / "run")[-1]["step"] == 3


def test_a_folder_in_use_is_refused(tiny_data: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="in use"):
        run(tiny_data, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_finished_run_says_so(tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tiny_data, tmp_path / "run", max_steps=2)
    capsys.readouterr()
    run(tiny_data, tmp_path / "run", max_steps=2)
    assert "already at step 2 of 2" in capsys.readouterr().err


def test_a_signal_finishes_the_step_saves_and_says_how_to_go_on(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "whole", max_steps=60, save_every=60, log_every=60)

    def interrupt() -> None:
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(Interrupted, match="Run the same command again") as stopped:
        run(tiny_data, tmp_path / "run", max_steps=60, save_every=60, log_every=1)
    thread.join()
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    step = checkpoint.read_contents(checkpoint.resolve(tmp_path / "run")).step
    assert 1 <= step < 60
    run(tiny_data, tmp_path / "run", max_steps=60, save_every=60, log_every=1)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "run"))


class Poisoned(LabelSmoothedCrossEntropy):
    """Not a number at every third call."""

    calls = 0

    def __call__(self, model: Any, batch: Batch) -> Loss:
        loss = super().__call__(model, batch)
        Poisoned.calls += torch.is_grad_enabled()
        return Loss(loss.total * float("nan"), loss.nll, loss.num_tokens) if Poisoned.calls % 3 == 0 else loss


@pytest.fixture
def _poison() -> Iterator[None]:
    component = registry.find("criterion", "label_smoothed_cross_entropy")
    Poisoned.calls = 0
    object.__setattr__(component, "build", Poisoned)
    yield
    object.__setattr__(component, "build", LabelSmoothedCrossEntropy)


@pytest.mark.usefixtures("_poison")
def test_updates_that_are_not_finite_are_skipped_and_counted(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "run", micro_batches=1, max_steps=9)
    assert metrics(tmp_path / "run")[-1]["skipped"] == 3
    assert all(torch.isfinite(tensor).all() for tensor in weights(tmp_path / "run").values())


@pytest.mark.usefixtures("_poison")
def test_too_many_of_them_stop_the_run_and_name_the_sentences(tiny_data: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"step 9: .* not finite; sentences \d+.*step-00000008") as stopped:
        run(tiny_data, tmp_path / "run", micro_batches=1, non_finite_budget=2)
    assert stopped.value.exit_code == 1
    assert checkpoint.read_contents(checkpoint.resolve(tmp_path / "run")).step == 8
