"""Hostile data directories and checkpoints are read, or rejected by an error that names them."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fuzzing import copied, fuzz, mangled, outcome, tampered
from hypothesis import given
from hypothesis import strategies as st

import nmt_cli
from nmt_cli import registry
from nmt_cli.data.corpus import Corpus
from nmt_cli.errors import NmtError
from nmt_cli.training import optimizer_state
from nmt_cli.training.state import RunState
from nmt_cli.weights import load_model, load_training

# The binary corpus.


def read_corpus(folder: Path) -> None:
    for split in ("train", "valid"):
        corpus = Corpus.open(folder, split)
        corpus.verify()
        # Also with matching checksums, no sentence reaches outside the ids.
        for i in range(len(corpus)):
            assert len(corpus.target(i)) + 1 == corpus.target_lengths[i]
        assert corpus.fingerprint
    corpus.raw_lines("source")


@fuzz(30, 500)
@given(data=st.data())
def test_a_tampered_manifest(tiny_data: Path, tmp_path: Path, data: st.DataObject) -> None:
    manifest = copied(tiny_data, tmp_path / "data") / "manifest.json"
    manifest.write_text(json.dumps(data.draw(tampered(json.loads(manifest.read_text())))))
    outcome(lambda: read_corpus(manifest.parent), manifest)


@fuzz(30, 500)
@given(data=st.data())
def test_mangled_ids_and_offsets(tiny_data: Path, tmp_path: Path, data: st.DataObject) -> None:
    folder = copied(tiny_data, tmp_path / "data")
    path = folder / data.draw(
        st.sampled_from(["train.source.ids", "train.target.offsets", "valid.source.txt"])
    )
    before = path.read_bytes()
    if path.suffix == ".offsets" and data.draw(st.booleans()):
        offsets = np.fromfile(path, np.int64)
        offsets[data.draw(st.integers(0, len(offsets) - 1))] = data.draw(
            st.sampled_from([-1, 2**62, 0, 10**6])
        )
        offsets.tofile(path)
    else:
        path.write_bytes(data.draw(mangled(before)))
    assert outcome(lambda: read_corpus(folder), path) == (path.read_bytes() == before)
    manifest = folder / "manifest.json"
    old, new = (sha256(content).hexdigest() for content in (before, path.read_bytes()))
    manifest.write_text(manifest.read_text().replace(old, new))
    outcome(lambda: read_corpus(folder), path)


# Checkpoints.


@pytest.fixture(scope="module")
def one_checkpoint(whole: Path) -> Path:
    registry.discover()
    return whole / "checkpoints" / "step-00000012"


def seal(folder: Path) -> None:
    """Write matching checksums, as an attacker would."""
    sums = {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "checksums.json"
    }
    (folder / "checksums.json").write_text(json.dumps(sums))


def use(folder: Path) -> None:
    nmt_cli.load(folder, device="cpu", max_length_offset=2).translate_window(
        ["one hundred", "\u00fc x"]
    )


@fuzz(25, 500)
@given(data=st.data())
@pytest.mark.parametrize(
    "name",
    ["config.json", "task/task.json", "checksums.json", "model.safetensors", "task/joint.model"],
)
def test_a_changed_checkpoint(
    one_checkpoint: Path, tmp_path: Path, name: str, data: st.DataObject
) -> None:
    """With matching checksums, and the vocabulary's fingerprint in task.json."""
    folder = copied(one_checkpoint, tmp_path / "checkpoint")
    before = (folder / name).read_bytes()
    if name.endswith(".json"):
        after = json.dumps(data.draw(tampered(json.loads(before)))).encode()
    else:
        after = data.draw(mangled(before[:3000])) + before[3000:]
    (folder / name).write_bytes(after)
    task = folder / "task" / "task.json"
    old, new = (sha256(content).hexdigest() for content in (before, after))
    task.write_text(task.read_text().replace(old, new))
    if name != "checksums.json":
        seal(folder)
    outcome(lambda: use(folder), folder)


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"num_layers": 10**9}, None),
        ({"positions": "learned", "max_positions": 10**15}, None),
        ({"num_heads": 2**31 - 1, "d_k": 2**31 - 1, "d_v": 2**31 - 1}, None),
        ({}, 10**13),
    ],
)
def test_claims_of_size_take_no_memory(
    one_checkpoint: Path, tmp_path: Path, changes: dict[str, Any], size: int | None
) -> None:
    folder = copied(one_checkpoint, tmp_path / "checkpoint")
    content = json.loads((folder / "config.json").read_text())
    content["sections"]["model"].update(changes)
    if size is not None:
        content["source_vocabulary_size"] = content["target_vocabulary_size"] = size
    (folder / "config.json").write_text(json.dumps(content))
    seal(folder)
    load_model(one_checkpoint)  # imports are not counted
    tracemalloc.start()
    try:
        with pytest.raises(NmtError, match="checkpoint"):
            load_model(folder)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["checksums.json", "task/joint.model"])
def test_pipes_in_place_of_files_do_not_block(
    one_checkpoint: Path, tmp_path: Path, name: str
) -> None:
    folder = copied(one_checkpoint, tmp_path / "checkpoint")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(NmtError, match="checkpoint"):
        load_model(folder)


@pytest.mark.parametrize("content", ["[" * 200_000, "9" * 100_000, '"\\ud800"'])
def test_hostile_json(one_checkpoint: Path, tmp_path: Path, content: str) -> None:
    folder = copied(one_checkpoint, tmp_path / "checkpoint")
    (folder / "config.json").write_text(content)
    seal(folder)
    assert not outcome(lambda: use(folder), folder)


def test_a_vocabulary_outside_the_checkpoint_is_not_read(
    one_checkpoint: Path, tmp_path: Path
) -> None:
    folder = copied(one_checkpoint, tmp_path / "checkpoint")
    shutil.move(folder / "task" / "joint.model", tmp_path / "joint.model")
    text = (folder / "task" / "task.json").read_text()
    (folder / "task" / "task.json").write_text(text.replace("joint.model", "../../joint.model"))
    seal(folder)
    assert not outcome(lambda: use(folder), folder)


@fuzz(40, 500)
@given(data=st.data())
def test_a_tampered_state_of_training(
    one_checkpoint: Path, tmp_path: Path, data: st.DataObject
) -> None:
    shutil.copytree(one_checkpoint, tmp_path, dirs_exist_ok=True)
    content = data.draw(tampered(load_training(one_checkpoint).values))
    (tmp_path / "training.json").write_text(json.dumps(content))
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters())

    def restore() -> None:
        saved = load_training(tmp_path)
        restored = RunState.from_json(saved.values["state"], str(tmp_path))
        assert restored.step >= 0
        assert restored.position >= 0
        optimizer_state.restore(optimizer, saved.values["optimizer"], {}, str(tmp_path))

    outcome(restore, tmp_path)
