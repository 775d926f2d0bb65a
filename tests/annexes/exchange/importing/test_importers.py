"""What can be imported, and that nothing in a file is run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

Run = Callable[..., tuple[int, str, str]]


class _Malicious:
    """An object whose pickle makes a directory when it is loaded."""

    def __init__(self, directory: Path) -> None:
        self.made = directory

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.made),)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("keys", [("cfg",), ("opt", "vocab")])
def test_a_malicious_pickle_is_refused_and_does_not_run(
    nmt: Run, tmp_path: Path, zipped: bool, keys: tuple[str, ...]
) -> None:
    path, directory = tmp_path / "model.pt", tmp_path / "made"
    saved = {"model": {"weight": torch.zeros(1)}, **dict.fromkeys(keys, _Malicious(directory))}
    torch.save(saved, path, _use_new_zipfile_serialization=zipped)
    code, _, err = nmt("import", path, "--out", tmp_path / "model")
    assert code == 1
    assert str(path) in err
    assert "mkdir" in err
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"]
    torch.load(path, weights_only=False)  # it would have run
    assert directory.is_dir()


@pytest.mark.parametrize("kind", ["missing", "empty folder", "text", "tensor", "other dictionary"])
def test_what_can_be_imported_is_listed(nmt: Run, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.pt"
    if kind == "empty folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("model")
    elif kind != "missing":
        torch.save(torch.zeros(1) if kind == "tensor" else {"state_dict": {}}, path)
    code, out, err = nmt("import", path, "--out", tmp_path / "out")
    assert (code, out) == (1, "")
    assert all(name in err for name in (str(path), "fairseq", "OpenNMT-py", "MarianMTModel"))
    assert not (tmp_path / "out").exists()
