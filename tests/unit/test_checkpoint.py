"""Checkpoints: atomic writes, checksums, and errors for contents that do not fit together."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmt_cli import checkpoint
from nmt_cli import weights as weights_module
from nmt_cli.errors import CheckpointError
from nmt_cli.files import durable
from nmt_cli.files.text import fingerprint
from nmt_cli.weights import (
    SavedTraining,
    average_weights,
    load_model,
    load_training,
    load_weights,
    save_checkpoint,
)

FILES = ("config.json", "model.safetensors", "task/task.json", "checksums.json")


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of a checkpoint."""
    shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def renew_checksums(folder: Path) -> None:
    recorded = {
        name: fingerprint(folder / name)
        for name in json.loads((folder / "checksums.json").read_text())
    }
    (folder / "checksums.json").write_text(json.dumps(recorded))


def change_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def saved(
    folder: Path,
    source: Path,
    weights: dict[str, torch.Tensor],
    training: SavedTraining | None = None,
) -> None:
    save_checkpoint(
        folder,
        checkpoint.read_contents(source),
        weights,
        checkpoint.load_task(source / "task"),
        training,
    )


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_a_checkpoint_consists_of_plain_files(folder: Path) -> None:
    names = set(everything(folder))
    assert set(FILES) <= names
    assert set(json.loads((folder / "checksums.json").read_text())) == names - {"checksums.json"}
    content = json.loads((folder / "config.json").read_text())
    assert content["schema"] == 1
    assert content["sections"]["model"]["d_model"] == 16


def test_weights_are_restored_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    weights = load_weights(folder)
    strange = {name: torch.randn_like(tensor) for name, tensor in weights.items()}
    strange["target_embedding.weight"][0, :3] = torch.tensor([float("inf"), -0.0, 1e-45])
    saved(tmp_path / "again", folder, strange)
    loaded = load_weights(tmp_path / "again")
    assert all(torch.equal(loaded[name], strange[name]) for name in strange)
    model, task = load_model(tmp_path / "again")
    assert not model.training
    assert torch.equal(model.output_weight, strange["target_embedding.weight"])
    assert task.encode_source("abc") == checkpoint.load_task(folder / "task").encode_source("abc")


def test_the_training_state_is_restored(folder: Path, tmp_path: Path) -> None:
    state = SavedTraining({"state": {"step": 7}, "optimizer": {}}, {"0.exp_avg": torch.arange(3.0)})
    saved(tmp_path / "again", folder, load_weights(folder), state)
    loaded = load_training(tmp_path / "again")
    assert loaded.values == state.values
    assert torch.equal(loaded.tensors["0.exp_avg"], torch.arange(3.0))
    for missing in ("state", "optimizer"):
        (tmp_path / "again" / "training.json").write_text(
            json.dumps({**state.values, missing: None})
        )
        with pytest.raises(CheckpointError, match=rf"training\.json: {missing} is missing"):
            load_training(tmp_path / "again")
    with pytest.raises(CheckpointError, match="weights only"):
        load_training(folder)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_bit_is_detected(folder: Path, data: st.DataObject) -> None:
    """In any file. Checksums.json may also stop being JSON, or name another file."""
    name = data.draw(st.sampled_from(sorted(everything(folder))))
    original = (folder / name).read_bytes()
    bit = data.draw(st.integers(0, 8 * len(original) - 1))
    damaged = bytearray(original)
    damaged[bit // 8] ^= 1 << bit % 8
    (folder / name).write_bytes(damaged)
    try:
        with pytest.raises(CheckpointError) as error:
            checkpoint.verify(folder)
        assert name == "checksums.json" or name in str(error.value)
    finally:
        (folder / name).write_bytes(original)


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("config.json", "emptied", "damaged"),
        ("model.safetensors", "truncated", "damaged"),
        ("task/task.json", "missing", "cannot read this file: No such file"),
    ],
)
def test_a_damaged_file_is_named(folder: Path, name: str, how: str, message: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    if how != "missing":
        (folder / name).write_bytes(content[: len(content) // 2 if how == "truncated" else 0])
    with pytest.raises(CheckpointError, match=rf"{name}: {message}"):
        checkpoint.verify(folder)
    with pytest.raises(CheckpointError):
        load_model(folder)


@pytest.mark.parametrize("content", ["[]", "{", "{}"])
def test_damaged_checksums(folder: Path, content: str) -> None:
    (folder / "checksums.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"checksums\.json"):
        load_weights(folder)


@pytest.mark.parametrize("name", ["/etc/passwd", "task/../../secret"])
def test_checksums_reach_no_file_outside(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_text("x")
    change_json(folder / "checksums.json", **{name: "0" * 64})
    with pytest.raises(CheckpointError, match="outside the checkpoint"):
        checkpoint.verify(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, r"config\.json: schema 2"),
        ({"schema": None, "model_type": "marian"}, "`nmt import` reads models of other programs"),
        ({"source_vocabulary_size": -1}, r"source_vocabulary_size must be at least 1, not -1"),
        ({"run": None}, r"run must be of type str"),
        ({"sections": {"model": "transformer"}}, r"no section 'model'"),
        (
            {"sections": {"model": {"name": "rnn"}, "attention": {"name": "full"}}},
            r"no model called 'rnn'",
        ),
        (
            {"sections": {"model": {"name": "rnn"}}, "modules": {"model": "their.rnn"}},
            r"'rnn' comes from the module their\.rnn: give --import their\.rnn",
        ),
        (
            {"target_vocabulary_size": 20},
            r"target_vocabulary_size of its model is 20, and of its task 13",
        ),
    ],
)
def test_a_config_that_does_not_fit_is_refused_by_name(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    """With a matching checksum."""
    change_json(folder / "config.json", **changes)
    renew_checksums(folder)
    with pytest.raises(CheckpointError, match=message):
        load_model(folder)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_layers", 2, r"do not fit: .* is in one of them only"),
        ("d_ff", 33, r"feed_forward\.inner\.weight is \[32, 16\], expected \[33, 16\]"),
        ("num_heads", 3, r"--num-heads 3 does not divide"),
    ],
)
def test_a_model_that_the_weights_do_not_fit(
    folder: Path, field: str, value: object, message: str
) -> None:
    sections = json.loads((folder / "config.json").read_text())["sections"]
    sections["model"][field] = value
    change_json(folder / "config.json", sections=sections)
    renew_checksums(folder)
    with pytest.raises(CheckpointError, match=message):
        load_model(folder)


def test_nothing_in_the_package_unpickles() -> None:
    """The package uses no pickle. torch.load, which could run a file's code, loads tensors only."""
    package = Path(checkpoint.__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "import pickle" not in text, path
        assert all(
            "weights_only=True" in call for call in re.findall(r"torch\.load\([^)]*\)?", text)
        ), path
        assert "torch.save(" not in text, path


class Fails(RuntimeError):
    """An injected error, such as of a disk that is removed."""


def rename_all_but_new_folders(self: Path, target: Path) -> None:
    if self.name.endswith("-part"):
        raise Fails
    os.rename(self, target)


@pytest.mark.parametrize("at", ["_save_tensors", "_flush", "rename"])
def test_a_failed_save_keeps_the_older_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Also if the old directory was already renamed."""
    before, weights = everything(folder), load_weights(folder)
    task, contents = checkpoint.load_task(folder / "task"), checkpoint.read_contents(folder)

    def fail(*_: object) -> None:
        raise Fails

    if at == "rename":
        monkeypatch.setattr(Path, "rename", rename_all_but_new_folders)
    else:
        monkeypatch.setattr(weights_module if at == "_save_tensors" else durable, at, fail)
    for place in (folder, folder.parent / "new"):
        with pytest.raises(Fails):
            save_checkpoint(place, contents, weights, task)
    assert everything(folder) == before
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoint"]


def test_a_link_is_a_checkpoint_of_its_own(folder: Path) -> None:
    checkpoint.link(folder, folder.parent / "best")
    assert everything(folder.parent / "best") == everything(folder)
    shutil.rmtree(folder)
    load_model(folder.parent / "best")


def test_directories_that_are_not_checkpoints(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="absent: "):
        load_model(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"empty: .*config\.json"):
        load_model(tmp_path / "empty")
    (folder / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"config\.json: "):
        checkpoint.read_contents(folder)
    with pytest.raises(CheckpointError, match=r"task\.json"):
        checkpoint.load_task(tmp_path)


def test_the_checkpoints_of_a_run(folder: Path, tmp_path: Path) -> None:
    """Those of --save-every are averaged. A run stands for the newest of any kind."""
    run, checkpoints = tmp_path / "run", tmp_path / "run" / "checkpoints"
    for name in (
        "step-00000008",
        "step-00000010",
        ".step-00000200.part",
        "damaged-step-00000012",
        "latest-x",
    ):
        shutil.copytree(folder, checkpoints / name)
    assert [path.name for path in checkpoint.checkpoints_of(run)] == [
        "step-00000008",
        "step-00000010",
    ]
    # Of one step, the last.
    for name in (
        "step-00000010",
        "latest-00000011",
        "best-00000011",
        "step-00000011",
    ):
        shutil.copytree(folder, checkpoints / name, dirs_exist_ok=True)
        assert checkpoint.locate(run).name == name
    assert checkpoint.locate(folder) == folder


def test_runs_without_checkpoints(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        checkpoint.locate(tmp_path / "run")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        checkpoint.locate(folder)


def test_an_average_is_summed_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, the 1 would be lost beside 10^8."""
    weights = {Path(str(number)): {"w": torch.tensor([number])} for number in (1e8, 1.0, -1e8)}
    monkeypatch.setattr(weights_module, "load_weights", weights.__getitem__)
    average = average_weights(list(weights))["w"]
    assert average.dtype == torch.float32
    assert average.tolist() == pytest.approx([1 / 3])
