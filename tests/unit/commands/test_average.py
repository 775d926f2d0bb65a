"""`nmt average`: the mean, and the checkpoints and outputs that it rejects."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from nmt_cli import checkpoint, registry
from nmt_cli.weights import SavedTraining, load_model, load_weights, save_checkpoint

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def average(nmt: Run) -> Run:
    """Runs `nmt average ARGUMENTS` here."""
    return partial(nmt, "average")


@pytest.fixture
def copy(tiny_checkpoint: Path) -> Callable[..., Path]:
    """Writes a checkpoint like the tiny one, with its weights times a factor."""

    def write(folder: Path, factor: float = 1.0, step: int = 1, run: str = "run") -> Path:
        contents = dataclasses.replace(
            checkpoint.read_contents(tiny_checkpoint), step=step, run=run
        )
        weights = {name: factor * tensor for name, tensor in load_weights(tiny_checkpoint).items()}
        save_checkpoint(folder, contents, weights, checkpoint.load_task(tiny_checkpoint / "task"))
        return folder

    return write


@pytest.fixture
def run(copy: Callable[..., Path], tmp_path: Path) -> Path:
    """Checkpoints of steps 10, 20, 30 and 50, each with its step as the factor."""
    for step in (10, 20, 30, 50):
        copy(tmp_path / "run" / "checkpoints" / f"step-{step:08d}", float(step), step)
    return tmp_path / "run"


def times(folder: Path, original: Path) -> float:
    """The factor between two checkpoints' weights, the same for all of them."""
    our_weights = load_weights(folder)
    original_weights = load_weights(original)
    assert our_weights.keys() == original_weights.keys()
    factor = (
        our_weights["target_embedding.weight"][5, 0]
        / original_weights["target_embedding.weight"][5, 0]
    ).item()
    for name, tensor in our_weights.items():
        torch.testing.assert_close(tensor, factor * original_weights[name])
    return factor


def test_the_last_of_a_run(average: Run, run: Path, tiny_checkpoint: Path) -> None:
    code, out, err = average(run, "--last", 3, "--out", run / "averaged")
    assert (code, out) == (0, "")
    assert f"averaged 3 checkpoints (steps 20, 30, 50) into {run / 'averaged'}" in err
    assert times(run / "averaged", tiny_checkpoint) == pytest.approx((20 + 30 + 50) / 3)
    contents = checkpoint.read_contents(run / "averaged")
    assert (contents.step, contents.run) == (50, "run")
    load_model(run / "averaged")


def test_one_checkpoint_loses_its_training_state(
    average: Run, run: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    """With --last 1, or by its name, where a file of its training state was deleted by hand."""
    one = run / "checkpoints" / "step-00000050"
    contents, weights = checkpoint.read_contents(one), load_weights(one)
    state = SavedTraining({"state": {}, "optimizer": {}}, {"0.moment": torch.ones(100_000)})
    save_checkpoint(one, contents, weights, checkpoint.load_task(one / "task"), state)
    for name, arguments in (("a", (run, "--last", 1)), ("b", (one,))):
        code, _, err = average(*arguments, "--out", tmp_path / name)
        assert (code, "checkpoint of step 50 without" in err) == (0, True)
        assert times(tmp_path / name, tiny_checkpoint) == 50
        assert (
            sum(path.stat().st_size for path in (tmp_path / name).rglob("*") if path.is_file())
            < 100_000
        )
        (one / "training.safetensors").unlink(missing_ok=True)


def test_the_mean_of_equals_is_the_same_bits(
    average: Run, copy: Callable[..., Path], tmp_path: Path
) -> None:
    """Sums in float64: three times a float32 number, divided by three, is that number."""
    same = [copy(tmp_path / name, 1 / 3, step) for step, name in enumerate("abc", start=1)]
    average(*same, "--out", tmp_path / "averaged")
    our_weights = load_weights(tmp_path / "averaged")
    first_weights = load_weights(same[0])
    assert all(torch.equal(our_weights[name], first_weights[name]) for name in first_weights)


def test_a_copy_of_a_checkpoint_counts_once(
    average: Run, run: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    """As with a glob of all checkpoints of a run, one of which is the best one."""
    folder = run / "checkpoints"
    shutil.copytree(folder / "step-00000020", folder / "best-00000020")
    code, _, err = average(*sorted(folder.iterdir()), "--out", tmp_path / "averaged")
    assert code == 0, err
    assert f"note: {folder / 'best-00000020'} is a copy of {folder / 'step-00000020'}" in err
    assert "averaged 4 checkpoints (steps 10, 20, 30, 50)" in err
    assert times(tmp_path / "averaged", tiny_checkpoint) == pytest.approx((10 + 20 + 30 + 50) / 4)


def test_a_newer_checkpoint_of_a_signal_is_named(
    average: Run, run: Path, copy: Callable[..., Path], tmp_path: Path
) -> None:
    copy(run / "checkpoints" / "latest-00000040", 40.0, 40)
    assert "note" not in average(run, "--last", 2, "--out", tmp_path / "older")[2]
    latest = copy(run / "checkpoints" / "latest-00000060", 60.0, 60)
    err = average(run, "--last", 2, "--out", tmp_path / "averaged")[2]
    assert f"note: {latest} is newer, and not in the mean" in err
    assert "(steps 30, 50)" in err


def test_different_runs_are_refused_unless_forced(
    average: Run, copy: Callable[..., Path], tmp_path: Path
) -> None:
    one, other = copy(tmp_path / "one", run="a"), copy(tmp_path / "other", 3.0, run="b")
    code, _, err = average(one, other, "--out", tmp_path / "averaged")
    assert code == 1
    assert str(other) in err
    assert "--force" in err
    assert not (tmp_path / "averaged").exists()
    assert average(one, other, "--force", "--out", tmp_path / "averaged")[0] == 0
    assert times(tmp_path / "averaged", one) == pytest.approx(2)


@pytest.mark.parametrize("different", ["shape", "more"])
def test_different_models_are_always_refused(
    average: Run,
    copy: Callable[..., Path],
    make_checkpoint: Callable[..., Path],
    tiny_checkpoint: Path,
    tmp_path: Path,
    different: str,
) -> None:
    one, other = copy(tmp_path / "one"), tmp_path / "other"
    if different == "shape":
        make_checkpoint(other, letters="abcdefghij")
    else:
        weights = {**load_weights(one), "encoder.1.extra": torch.ones(2)}
        task = checkpoint.load_task(one / "task")
        save_checkpoint(other, checkpoint.read_contents(one), weights, task)
    code, _, err = average(one, other, "--force", "--out", tmp_path / "averaged")
    assert code == 1
    assert ("target_embedding.weight" if different == "shape" else "encoder.1.extra") in err
    assert not (tmp_path / "averaged").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{run}", "--last", "5"], 2, "--last 4"),
        (["{run}"], 2, "--last N"),
        (["{run}", "{run}", "--last", "2"], 2, "exactly one RUN"),
        (["{tmp}/absent", "--last", "2"], 2, "absent"),
        (["{run}/checkpoints/step-00000010", "{run}", "{run}"], 2, "given twice"),
        (["{tmp}/absent", "{run}"], 1, "absent"),
    ],
)
def test_refusals(
    average: Run, run: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    given = [part.format(run=run, tmp=tmp_path) for part in arguments]
    exit_code, out, err = average(*given, "--out", tmp_path / "averaged")
    assert (exit_code, out) == (code, "")
    assert message in " ".join(err.split())
    assert not (tmp_path / "averaged").exists()


def test_an_averaged_checkpoint_is_replaced_with_overwrite(
    average: Run, run: Path, tiny_checkpoint: Path
) -> None:
    """Also through a link to it."""
    out = run / "averaged"
    (run / "link").symlink_to("averaged")
    assert average(run, "--last", 1, "--out", out)[0] == 0
    code, _, err = average(run, "--last", 2, "--out", out)
    assert code == 2
    assert str(out) in err
    assert times(out, tiny_checkpoint) == pytest.approx(50)
    assert average(run, "--last", 2, "--out", run / "link", "--overwrite")[0] == 0
    assert (run / "link").is_symlink()
    assert times(out, tiny_checkpoint) == pytest.approx(40)
    assert sorted(path.name for path in run.iterdir()) == ["averaged", "checkpoints", "link"]


@pytest.mark.parametrize("out", ["run", "run/checkpoints/step-00000060", "run/best", "run/another"])
def test_nothing_else_is_replaced(
    average: Run, run: Path, copy: Callable[..., Path], tmp_path: Path, out: str
) -> None:
    """Not a run, a checkpoint of one, a link to that, or another toolkit's model."""
    copy(run / "checkpoints" / "best-00000030")
    (run / "best").symlink_to("checkpoints/best-00000030")
    (run / "another").mkdir()
    for name in ("config.json", "model.safetensors"):
        (run / "another" / name).write_text("{}")
    before = everything(tmp_path)
    code, _, err = average(run, "--last", 2, "--out", tmp_path / out, "--overwrite")
    assert (code, len(err.splitlines())) == (2, 1)
    assert everything(tmp_path) == before


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


PLUGIN = """
from nmt_cli.registry import register
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask
register("task", "mine", TranslationConfig)(type("Mine", (TranslationTask,), {}))
"""


def test_a_task_from_an_imported_module(
    average: Run, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        registry, "_components", {kind: dict(known) for kind, known in registry._components.items()}
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_task.py").write_text(PLUGIN)
    for folder in (run / "checkpoints").iterdir():
        sums = folder / "checksums.json"
        for name, old, new in [
            ("task/task.json", '"translation"', '"mine"'),
            ("config.json", '"modules": {}', '"modules": {"task": "my_task"}'),
        ]:
            path = folder / name
            before = sha256(path.read_bytes()).hexdigest()
            path.write_text(path.read_text().replace(old, new))
            sums.write_text(sums.read_text().replace(before, sha256(path.read_bytes()).hexdigest()))
    arguments = (run, "--last", 2, "--out", run / "averaged")
    code, _, err = average(*arguments)
    assert code == 1
    assert "--import my_task" in err
    assert average(*arguments, "--import", "my_task")[0] == 0
