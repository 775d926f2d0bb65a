"""Fuzz tests of every file format: a file is read, or rejected by an error that names it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from functools import reduce
from hashlib import sha256
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nmt_cli
from nmt_cli import checkpoint, registry
from nmt_cli.config import resolve
from nmt_cli.data.corpus import Corpus
from nmt_cli.errors import DataError, NmtError
from nmt_cli.files.text import read_lines
from nmt_cli.parsing.trees import clean, parse_trees, tree_line
from nmt_cli.training import optimizer_state
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.training.state import RunState

LONG = os.environ.get("NMT_FAULTS") == "long"


def fuzz(few: int, many: int) -> Callable[[Any], Any]:
    """Choose the number of examples: (in a normal test run, with NMT_FAULTS=long)."""
    return settings(
        max_examples=many if LONG else few,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([10**9, 2**63, -(2**63), 10**30, 1e308, float("nan"), float("inf")]),
    st.text(max_size=8),
    st.sampled_from(["../../etc/passwd", "/etc/passwd", "..", "", "\0", "\ud800", "os.system", "1"]),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all values inside a JSON value."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:20]) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


@st.composite
def tampered(draw: st.DrawFn, original: Any) -> Any:
    """A JSON value with a few values changed, removed or added."""
    value = json.loads(json.dumps(original))
    for _ in range(draw(st.integers(1, 3))):
        if not (found := list(places(value))):
            break
        *way, last = draw(st.sampled_from(found))
        at = reduce(getitem, way, value)
        match draw(st.sampled_from(["change", "change", "remove", "add"])):
            case "remove":
                del at[last]
            case "add" if isinstance(at, dict):
                at[draw(st.text(max_size=5))] = draw(odd_values)
            case _:
                at[last] = draw(odd_values)
    return value


@st.composite
def mangled(draw: st.DrawFn, original: bytes) -> bytes:
    """Bytes of which some are removed, replaced or added."""
    content = original
    for _ in range(draw(st.integers(1, 4))):
        at, length = draw(st.integers(0, len(content))), draw(st.sampled_from([0, 1, 2, 30, len(content)]))
        content = content[:at] + draw(st.binary(max_size=12)) + content[at + length :]
    return content


def outcome(act: Callable[[], Any], file: Path | str) -> bool:
    """Return whether `act` succeeds. Its error must be an NmtError that names the file or its directory."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            act()
    except NmtError as error:
        told = str(error)
        if not any(str(place) in told for place in (file, Path(file).parent)):
            raise AssertionError(f"names neither the file nor its folder: {told}") from error
        return False
    return True


# Text and trees.


TEXT = "Größe\nein Satz\n\u2028x\r\n".encode()


@fuzz(40, 700)
@given(content=st.one_of(st.binary(max_size=200), mangled(TEXT), mangled(gzip.compress(TEXT * 50, mtime=0))))
def test_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(content)
    lines: list[str] = []
    if outcome(lambda: lines.extend(read_lines(path)), path) and not content.startswith(b"\x1f\x8b"):
        plain = content.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").replace(b"\r\n", b"\n")
        assert "\n".join(lines).encode() == plain.removesuffix(b"\r")


def test_a_gzip_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line a thousand times as large as its file is rejected before it is read to its end."""
    monkeypatch.setattr("nmt_cli.files.text.LONGEST_LINE", 1 << 20)
    path, read = tmp_path / "bomb.gz", list[int]()
    path.write_bytes(gzip.compress(bytes(20 << 20)))
    with pytest.raises(DataError, match=r"bomb\.gz:1: "):
        list(read_lines(path, read.append))
    assert len(read) < 20  # blocks, of 80


BRACKETS = st.text(alphabet=st.sampled_from("() \n\tS NP\\|-=~é"), max_size=80).map(str.encode)


@fuzz(50, 500)
@given(content=st.one_of(BRACKETS, mangled(b"(TOP (S (NP-SBJ (NN cat)) (VP (VBD sat))))\n" * 2)))
def test_trees(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trees.mrg"
    path.write_bytes(content)
    trees: list[Any] = []
    if outcome(lambda: trees.extend(parse_trees(read_lines(path), str(path))), path):
        for tree, _ in trees:
            cleaned = clean(tree)
            if cleaned is not None:
                (again,) = parse_trees([tree_line(cleaned)], "again")
                assert again.tree.words == cleaned.words


def test_a_tree_a_hundred_thousand_deep(tmp_path: Path) -> None:
    path = tmp_path / "deep.mrg"
    path.write_text("(S " * 100_000 + "(NN x)" + ")" * 100_000)
    ((tree, _),) = parse_trees(read_lines(path), str(path))
    cleaned = clean(tree)
    assert cleaned is not None
    assert cleaned.words == ["x"]


# The binary corpus.


def read_corpus(folder: Path) -> None:
    for split in ("train", "valid"):
        corpus = Corpus.open(folder, split)
        corpus.verify()
        for i in range(len(corpus)):  # also with matching checksums, no sentence reaches outside the ids
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
    path = folder / data.draw(st.sampled_from(["train.source.ids", "train.target.offsets", "valid.source.txt"]))
    before = path.read_bytes()
    if path.suffix == ".offsets" and data.draw(st.booleans()):
        offsets = np.fromfile(path, np.int64)
        offsets[data.draw(st.integers(0, len(offsets) - 1))] = data.draw(st.sampled_from([-1, 2**62, 0, 10**6]))
        offsets.tofile(path)
    else:
        path.write_bytes(data.draw(mangled(before)))
    assert outcome(lambda: read_corpus(folder), path) == (path.read_bytes() == before)
    manifest = folder / "manifest.json"
    old, new = (sha256(content).hexdigest() for content in (before, path.read_bytes()))
    manifest.write_text(manifest.read_text().replace(old, new))
    outcome(lambda: read_corpus(folder), path)


def copied(original: Path, folder: Path) -> Path:
    """A new copy that replaces an earlier one."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    return folder


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
    nmt_cli.load(folder, device="cpu", max_length_offset=2).translate_window(["one hundred", "\u00fc x"])


@fuzz(25, 500)
@given(data=st.data())
@pytest.mark.parametrize(
    "name", ["config.json", "task/task.json", "checksums.json", "model.safetensors", "task/joint.model"]
)
def test_a_changed_checkpoint(one_checkpoint: Path, tmp_path: Path, name: str, data: st.DataObject) -> None:
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
    checkpoint.load_model(one_checkpoint)  # imports are not counted
    tracemalloc.start()
    try:
        with pytest.raises(NmtError, match="checkpoint"):
            checkpoint.load_model(folder)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["checksums.json", "task/joint.model"])
def test_pipes_in_place_of_files_do_not_block(one_checkpoint: Path, tmp_path: Path, name: str) -> None:
    folder = copied(one_checkpoint, tmp_path / "checkpoint")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(NmtError, match="checkpoint"):
        checkpoint.load_model(folder)


@pytest.mark.parametrize("content", ["[" * 200_000, "9" * 100_000, '"\\ud800"'])
def test_hostile_json(one_checkpoint: Path, tmp_path: Path, content: str) -> None:
    folder = copied(one_checkpoint, tmp_path / "checkpoint")
    (folder / "config.json").write_text(content)
    seal(folder)
    assert not outcome(lambda: use(folder), folder)


def test_a_vocabulary_outside_the_checkpoint_is_not_read(one_checkpoint: Path, tmp_path: Path) -> None:
    folder = copied(one_checkpoint, tmp_path / "checkpoint")
    shutil.move(folder / "task" / "joint.model", tmp_path / "joint.model")
    text = (folder / "task" / "task.json").read_text()
    (folder / "task" / "task.json").write_text(text.replace("joint.model", "../../joint.model"))
    seal(folder)
    assert not outcome(lambda: use(folder), folder)


@fuzz(40, 500)
@given(data=st.data())
def test_a_tampered_state_of_training(one_checkpoint: Path, tmp_path: Path, data: st.DataObject) -> None:
    shutil.copytree(one_checkpoint, tmp_path, dirs_exist_ok=True)
    content = data.draw(tampered(checkpoint.load_training(one_checkpoint).values))
    (tmp_path / "training.json").write_text(json.dumps(content))
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters())

    def restore() -> None:
        saved = checkpoint.load_training(tmp_path)
        restored = RunState.from_json(saved.values["state"], str(tmp_path))
        assert restored.step >= 0
        assert restored.position >= 0
        optimizer_state.restore(optimizer, saved.values["optimizer"], {}, str(tmp_path))

    outcome(restore, tmp_path)


# Configuration files.


@fuzz(75, 500)
@given(data=st.data(), toml=st.booleans())
def test_configuration_files(whole: Path, tmp_path: Path, data: st.DataObject, toml: bool) -> None:
    registry.discover()
    path = tmp_path / ("config.toml" if toml else "config.json")
    if toml:
        path.write_bytes(data.draw(mangled(b'preset = 1\n[model]\nd-model = 64\nnorm = "pre"\n[training]\nseed = 3\n')))
    else:
        path.write_text(json.dumps(data.draw(tampered(json.loads((whole / "config.json").read_text())))))
    outcome(lambda: resolve(TrainingConfig, {}, file=path), path)
