"""Copies of the package without its annexes."""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Collection
from pathlib import Path

import nmt_cli

ENTRY_POINTS = [
    entry
    for entry in importlib.metadata.distribution("nmt-cli").entry_points
    if entry.group != "console_scripts"
]
ANNEXES = sorted({entry.value.split(".")[2] for entry in ENTRY_POINTS})


def copy_without(annexes: Collection[str], folder: Path) -> Path:
    """Copy the package to `folder`, without `annexes` and their entry points.

    Return `folder`, for PYTHONPATH.
    """
    source = Path(nmt_cli.__file__).parent
    # A file of bytecode that another process writes has such a name until it is whole.
    shutil.copytree(source, folder / "nmt_cli", ignore=shutil.ignore_patterns("*.pyc.*"))
    for annex in annexes:
        shutil.rmtree(folder / "nmt_cli" / "annexes" / annex)
        # The finder of an editable installation would find the original.
        (folder / "nmt_cli" / "annexes" / f"{annex}.py").write_text(
            "raise ModuleNotFoundError(__name__)\n"
        )
    metadata = folder / "nmt_cli.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: nmt-cli\nVersion: 0\n")
    entries_left = [entry for entry in ENTRY_POINTS if entry.value.split(".")[2] not in annexes]
    (metadata / "entry_points.txt").write_text(
        "".join(f"[{entry.group}]\n{entry.name} = {entry.value}\n" for entry in entries_left)
    )
    return folder
