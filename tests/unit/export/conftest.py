"""Exports of the tiny checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt_cli.export.writing import write_export


@pytest.fixture(scope="session")
def tiny_export(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint for CTranslate2; all tests read it and none changes it."""
    out = tmp_path_factory.mktemp("export") / "ctranslate2"
    write_export(tiny_checkpoint, "ctranslate2", out)
    return out
