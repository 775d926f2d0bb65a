"""The training loop: exact resume, skipped updates that are not finite, stops after a signal."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from like_a_gpu import like_a_gpu
from tiny_run import metrics, run
from torch.utils._python_dispatch import TorchDispatchMode

from nmt_cli import checkpoint, registry
from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.device import fast
from nmt_cli.distributed import World
from nmt_cli.errors import Interrupted, TrainingError, UsageError
from nmt_cli.interfaces import Batch, Loss
from nmt_cli.training.run import Run
from nmt_cli.training.run_directory import RunDirectory
from nmt_cli.training.start import describe
from nmt_cli.training.trainer import Trainer
from nmt_cli.training.updates import MicroBatch
from nmt_cli.weights import load_weights


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_weights(checkpoint.locate(out))


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


@pytest.fixture(scope="module")
def whole(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run of 12 steps."""
    out = tmp_path_factory.mktemp("whole") / "run"
    run(tiny_data, out)
    return out


def test_a_run_that_stopped_between_two_log_lines_resumes_bit_for_bit(
    tiny_data: Path, tmp_path: Path, whole: Path
) -> None:
    run(tiny_data, tmp_path / "parts", max_steps=4)
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "best-00000004")
    run(tiny_data, tmp_path / "parts")
    assert contents(tmp_path / "parts") == contents(whole)


def test_a_run_without_its_last_checkpoint_repeats_the_steps(
    tiny_data: Path, tmp_path: Path, whole: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out, symlinks=True)
    for newest in out.glob("checkpoints/*-00000012"):
        shutil.rmtree(newest)
    run(tiny_data, out)
    assert contents(out) == contents(whole)


def test_only_the_last_checkpoints_and_the_best_are_kept(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "run", keep_last=2)
    assert [path.name for path in checkpoint.checkpoints_of(tmp_path / "run")] == [
        "step-00000008",
        "step-00000012",
    ]
    validations = {
        line["step"]: line["validation_loss"]
        for line in metrics(tmp_path / "run")
        if "validation_loss" in line
    }
    best = min(validations, key=lambda step: validations[step])
    assert checkpoint.read_contents(tmp_path / "run" / "best").step == best


def test_patience_stops_a_run_and_says_so(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first validation is the best. The two after it are equal."""
    changes = {"max_steps": 100, "learning_rate_scale": 0.0, "patience": 2}
    for _ in range(2):
        run(tiny_data, tmp_path / "run", **changes)
        assert "stopped at step 12: " in capsys.readouterr().err
    assert metrics(tmp_path / "run")[-1]["step"] == 12
    run(tiny_data, tmp_path / "run", **{**changes, "patience": 3})
    assert metrics(tmp_path / "run")[-1]["step"] == 16


def test_other_settings_are_refused_by_name(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "run", max_steps=2)
    with pytest.raises(UsageError) as refused:
        run(tiny_data, tmp_path / "run", batch_tokens=600, d_ff=33)
    for change in ("--model.d-ff was 32, now 33", "--training.batch-tokens was 500, now 600"):
        assert change in str(refused.value)
    run(tiny_data, tmp_path / "run", max_steps=3, log_every=1)  # these may change
    assert metrics(tmp_path / "run")[-1]["step"] == 3


def test_a_run_with_settings_of_an_earlier_version_is_resumed(
    tiny_data: Path, tmp_path: Path
) -> None:
    run(tiny_data, tmp_path / "run", max_steps=2)
    config = tmp_path / "run" / "config.json"
    recorded = json.loads(config.read_text())
    # Newer than the run: the defaults.
    del (
        recorded["model"]["max_positions"],
        recorded["training"]["patience"],
    )
    config.write_text(json.dumps(recorded))
    with pytest.raises(UsageError, match=r"--model\.max-positions .*1,024, now 4"):
        run(tiny_data, tmp_path / "run", max_positions=4)
    run(tiny_data, tmp_path / "run", max_steps=3, log_every=1)
    assert metrics(tmp_path / "run")[-1]["step"] == 3


def test_a_resumed_run_keeps_its_fingerprint(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nmt average` knows its checkpoints by it, though a newer version would write another."""
    run(tiny_data, tmp_path / "run", max_steps=2)
    monkeypatch.setattr(
        "nmt_cli.training.start.describe", lambda *parts: {**describe(*parts), "run": "another"}
    )
    run(tiny_data, tmp_path / "run", max_steps=4)
    first, second = map(checkpoint.read_contents, checkpoint.checkpoints_of(tmp_path / "run"))
    assert first.run == second.run != "another"


def test_a_directory_in_use_is_refused(tiny_data: Path, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("mine")
    with pytest.raises(UsageError, match=r"in use: it has summary\.json"):
        run(tiny_data, tmp_path)
    with pytest.raises(UsageError, match=r"in use: it has manifest\.json"):
        run(tiny_data, tiny_data)
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_a_signal_stops_and_saves_the_run(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the update that follows. Tests/faults has signals at steps that validate and save."""
    steps = {"max_steps": 6, "save_every": 6, "log_every": 1}
    run(tiny_data, tmp_path / "whole", **steps)
    append = RunDirectory.append_metrics

    def append_and_signal(self: RunDirectory, record: Any) -> None:
        append(self, record)
        if record["step"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "append_metrics", append_and_signal)
        with pytest.raises(Interrupted) as stopped:
            run(tiny_data, tmp_path / "run", **steps)
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    newest = checkpoint.locate(tmp_path / "run")
    assert str(newest) in str(stopped.value)
    assert checkpoint.read_contents(newest).step == 3
    run(tiny_data, tmp_path / "run", **steps)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


class Poisoned(LabelSmoothedCrossEntropy):
    """Not a number at every third call."""

    calls = 0

    def __call__(self, model: Any, batch: Batch) -> Loss:
        loss = super().__call__(model, batch)
        Poisoned.calls += torch.is_grad_enabled()
        return (
            Loss(loss.total * float("nan"), loss.nll, loss.num_tokens)
            if Poisoned.calls % 3 == 0
            else loss
        )


@pytest.fixture
def _poison() -> Iterator[None]:
    component = registry.find("criterion", "label_smoothed_cross_entropy")
    Poisoned.calls = 0
    object.__setattr__(component, "build", Poisoned)
    yield
    object.__setattr__(component, "build", LabelSmoothedCrossEntropy)


@pytest.mark.usefixtures("_poison")
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_updates_that_are_not_finite_are_skipped_and_counted(
    precision: str, tiny_data: Path, tmp_path: Path
) -> None:
    run(tiny_data, tmp_path / "run", micro_batches=1, max_steps=9, precision=precision)
    assert metrics(tmp_path / "run")[-1]["skipped"] == 3
    assert all(torch.isfinite(tensor).all() for tensor in weights(tmp_path / "run").values())


@pytest.mark.usefixtures("_poison")
def test_too_many_of_them_stop_the_run_and_name_the_sentences(
    tiny_data: Path, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=r"step 9: .* sentences \d+.*step-00000008") as stopped:
        run(tiny_data, tmp_path / "run", micro_batches=1, non_finite_budget=2)
    assert stopped.value.exit_code == 1
    assert checkpoint.read_contents(checkpoint.locate(tmp_path / "run")).step == 8


def test_losses_are_read_one_update_late(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the next update was started, or before something is logged or saved."""
    events: list[str] = []
    accumulate, start_sum = Trainer.accumulate, World.start_sum

    def accumulated(self: Trainer, share: Any, step: int) -> torch.Tensor:
        events.append(f"made {step}")
        return accumulate(self, share, step)

    def started(self: World, tensor: torch.Tensor) -> Any:
        last_update, read = events[-1], start_sum(self, tensor)

        def reading() -> list[float]:
            events.append(last_update.replace("made", "read"))
            return read()

        return reading

    monkeypatch.setattr(Trainer, "accumulate", accumulated)
    monkeypatch.setattr(World, "start_sum", started)
    monkeypatch.setattr(Run, "validate", lambda _: {})
    monkeypatch.setattr(Run, "check_agreement", lambda _: None)
    run(tiny_data, tmp_path / "run", max_steps=5, log_every=3, save_every=5)
    assert " ".join(events).replace("made ", "+").replace("read ", "") == "+1 +2 1 +3 2 3 +4 +5 4 5"


class Waits(TorchDispatchMode):
    """Counts the operations for which a host waits for its GPU."""

    count = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += any(
            name in str(function) for name in ("_local_scalar_dense", "nonzero", "masked_select")
        )
        return function(*args, **kwargs or {})


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_an_update_reads_nothing_from_its_device(
    precision: str, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of bins, as on a GPU, and without dropout, whose masks a CPU makes in another way."""
    waits = Waits()
    for name in ("set_learning_rate", "accumulate", "change"):
        part = getattr(Trainer, name)

        def counted(*arguments: Any, part: Any = part) -> Any:
            with waits:
                return part(*arguments)

        monkeypatch.setattr(Trainer, name, counted)
    like_a_gpu(monkeypatch)
    run(
        tiny_data,
        tmp_path / "run",
        max_steps=3,
        dropout=0.0,
        clip_norm=1.0,
        precision=precision,
        compile=False,
    )
    assert waits.count == 0
    with waits:
        assert torch.ones(2).sum().item() == len(torch.ones(2).nonzero())
    assert waits.count == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("clip_norm", [0.0, 1.0])
def test_the_host_does_not_wait_for_the_gpu(
    clip_norm: float, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the fourth to the eleventh update. Log lines and checkpoints may wait."""
    following = Run.next_update

    def strict(self: Run, updates: Any) -> Any:
        torch.cuda.set_sync_debug_mode("error" if 3 <= self.state.step < 11 else "default")
        return following(self, updates)

    monkeypatch.setattr(Run, "next_update", strict)
    try:
        run(
            tiny_data,
            tmp_path / "run",
            device="cuda",
            clip_norm=clip_norm,
            save_every=12,
            log_every=12,
        )
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert metrics(tmp_path / "run")[-1]["step"] == 12


def test_the_first_update_has_its_learning_rate(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device may keep the rate in a tensor of its own, as a CUDA graph does."""
    rates = []

    def change(
        _: Any, plain: Callable[[torch.Tensor], None], optimizer: torch.optim.Optimizer, __: Any
    ) -> Any:
        optimizer.param_groups[0]["lr"] = torch.zeros(())

        def changed(sums: torch.Tensor) -> None:
            rates.append(float(optimizer.param_groups[0]["lr"]))
            plain(sums)

        return changed

    monkeypatch.setattr(type(fast(torch.device("cpu"))), "change", change)
    run(tiny_data, tmp_path / "run", max_steps=3)
    # A linear warm-up: equation 3.
    assert rates == pytest.approx([rates[0], 2 * rates[0], 3 * rates[0]])
    assert rates[0] > 0


def test_packed_batches_give_the_same_updates(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: bins in place of padded sentences.

    Only rounding differs, and not after a restart.
    """
    exact = {
        "dropout": 0.0,
        "precision": "float32",
        "micro_batches": None,
        "num_layers": 1,
        "compile": False,
    }
    run(tiny_data, tmp_path / "padded", **exact)
    like_a_gpu(monkeypatch)
    run(tiny_data, tmp_path / "packed", **exact)
    run(tiny_data, tmp_path / "resumed", **exact, max_steps=5)
    run(tiny_data, tmp_path / "resumed", **exact)
    assert same(weights(tmp_path / "resumed"), weights(tmp_path / "packed"))
    padded, packed = weights(tmp_path / "padded"), weights(tmp_path / "packed")
    assert not same(padded, packed)
    for name, weight in padded.items():
        torch.testing.assert_close(packed[name], weight, rtol=1e-3, atol=1e-4)


def test_a_micro_batch_without_weight_has_no_loss() -> None:
    """A rank repeats one where others have more, so that all make as many passes."""
    losses = {"real": torch.tensor([3.0, 2.0]), "repeated": torch.tensor([30.0, 20.0])}
    gradients = SimpleNamespace(
        clear=lambda: None, add=lambda batch, *_: losses[batch], finish=list
    )
    trainer: Any = SimpleNamespace(
        gradients=gradients, config=SimpleNamespace(seed=1), world=World(0, 1, torch.device("cpu"))
    )
    share: Any = [
        MicroBatch(0, "real", 0.5),
        MicroBatch(0, "repeated", 0.0),
        MicroBatch(1, "real", 0.5),
    ]  # type: ignore[arg-type]
    assert Trainer.accumulate(trainer, share, step=1).tolist() == [6.0, 4.0, 0.0]
