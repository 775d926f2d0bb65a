"""Scalars for TensorBoard, read by its own loader."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import tiny_run
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util.tensor_util import make_ndarray

from nmt_cli import checkpoint
from nmt_cli.errors import UsageError
from nmt_cli.files import durable

run = partial(tiny_run.run, max_steps=6, save_every=2, log_every=1)
Points = dict[tuple[str, int], float]


def points(out: Path) -> Points:
    """The values by tag and step, of all files as they are.

    TensorBoard itself hides some that are repeated.
    """
    curves: Points = {}
    counts: Counter[tuple[str, int]] = Counter()
    for path in sorted((out / "tensorboard").glob("events.out.tfevents.*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                curves[value.tag, event.step] = make_ndarray(value.tensor).item()
                counts[value.tag, event.step] += 1
    assert set(counts.values()) == {1}
    return curves


def expected(out: Path) -> Points:
    return {
        (
            f"validation/{name[11:]}" if name.startswith("validation_") else f"train/{name}",
            record["step"],
        ): value
        for record in tiny_run.metrics(out)
        for name, value in record.items()
        if name != "step" and value is not None
    }


def test_every_figure_is_there_once(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "run", tensorboard=True)
    curves = points(tmp_path / "run")
    assert curves == pytest.approx(expected(tmp_path / "run"), rel=1e-6)
    assert {("train/loss", 5), ("validation/perplexity", 6), ("train/lr", 1)} < curves.keys()


def test_a_resumed_run_has_no_point_twice(tiny_data: Path, tmp_path: Path) -> None:
    """It has lost its last checkpoint, so it repeats two steps. The flag may be given only then."""
    for first in (True, False):
        out = tmp_path / str(first)
        run(tiny_data, out, tensorboard=first, max_steps=4)
        for newest in [
            path for path in checkpoint.resumable_of(out) if path.name.endswith("-00000004")
        ]:
            durable.delete(newest)
        run(tiny_data, out, tensorboard=True)
        assert points(out) == pytest.approx(expected(out), rel=1e-6)


def test_a_copy_leaves_the_files_of_the_original(tiny_data: Path, tmp_path: Path) -> None:
    """RUN/tensorboard may be a link to a folder that runs share, and a copy has the same link."""
    original, shared = tmp_path / "run", tmp_path / "shared"
    shared.mkdir()
    original.mkdir()
    (original / "tensorboard").symlink_to(shared)
    run(tiny_data, original, tensorboard=True, max_steps=2)
    events = set(shared.iterdir())
    copy = shutil.copytree(original, tmp_path / "copy", symlinks=True)
    run(tiny_data, copy, tensorboard=True, max_steps=4)
    assert events < set(shared.iterdir())


def test_without_the_package_nothing_is_made(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(
        UsageError,
        match=r"--tensorboard .*nmt-cli\[tensor",
    ):
        run(tiny_data, tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


def test_files_of_other_runs_stay(tiny_data: Path, tmp_path: Path) -> None:
    """RUN/tensorboard may be a link to a folder that runs share."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "events.out.tfevents.1.other").write_text("x")
    for name in ("first", "second", "first"):
        (tmp_path / name).mkdir(exist_ok=True)
        if not (tmp_path / name / "tensorboard").exists():
            (tmp_path / name / "tensorboard").symlink_to(shared)
        steps = 6 if (tmp_path / name / "metrics.jsonl").exists() else 4
        run(tiny_data, tmp_path / name, tensorboard=True, max_steps=steps)
    assert len(list(shared.iterdir())) == 3
    assert (shared / "events.out.tfevents.1.other").read_text() == "x"
    ending, _ = (tmp_path / "first" / ".tensorboard").read_text().split()
    (event_file,) = shared.glob(f"*{ending}")
    event_file.rename(shared / "events.out.tfevents.1")
    (tmp_path / "alone").mkdir()
    (shared / "events.out.tfevents.1").rename(tmp_path / "alone" / "events.out.tfevents.1")
    (tmp_path / "first" / "tensorboard").unlink()
    (tmp_path / "alone").rename(tmp_path / "first" / "tensorboard")
    assert points(tmp_path / "first") == pytest.approx(expected(tmp_path / "first"), rel=1e-6)
