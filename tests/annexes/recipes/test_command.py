"""`nmt recipes`, and the recipes in the wheel and the source distribution."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli.annexes.recipes import command

ROOT = Path(__file__).resolve().parents[3]
Nmt = Callable[..., tuple[int, str, str]]

BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"


def recipe_files() -> set[str]:
    paths = (path.relative_to(ROOT) for path in (ROOT / "recipes").rglob("*") if path.is_file())
    return {str(path) for path in paths if path.suffix != ".pyc"}


def test_every_recipe_is_listed_with_its_subject(nmt: Nmt) -> None:
    code, out, _ = nmt("recipes")
    assert code == 0
    listed = dict(line.split("  ", 1) for line in out.splitlines())
    runnable = {path.name for path in (ROOT / "recipes").rglob("*.sh") if os.access(path, os.X_OK)}
    assert {Path(name).name for name in listed} == runnable - {"train.sh"}
    assert (
        listed["wmt14_en_de.sh"].strip()
        == "WMT14 English to German, from the raw downloads to Table 2 of the paper"
    )


def test_copied_recipes_run(nmt: Nmt, tmp_path: Path) -> None:
    out = tmp_path / "recipes"
    code, printed, _ = nmt("recipes", "--out", out)
    assert (code, printed) == (0, "")
    assert {
        str(path.relative_to(tmp_path)) for path in out.rglob("*") if path.is_file()
    } == recipe_files()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = [out / "tasks" / "scan.sh", "--help"]
    done = subprocess.run(
        script, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("SCAN (Lake and Baroni 2018)")
    assert nmt("recipes", "--out", out)[0] == 2


def test_an_installed_package_has_them_beside_its_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The wheel is unpacked as an installer does it, and its metadata are found there."""
    site, name = tmp_path / "site", built("wheel", tmp_path)
    with zipfile.ZipFile(tmp_path / name) as wheel:
        wheel.extractall(site)
    (data,) = site.glob("*.data")
    shutil.copytree(data / "data", site, dirs_exist_ok=True)
    copied = {
        str(path.relative_to(site / "share" / "nmt"))
        for path in (site / "share").rglob("*")
        if path.is_file()
    }
    assert copied == recipe_files()
    (info,) = site.glob("*.dist-info")
    (info / "RECORD").write_text("share/nmt/recipes/common.sh,,\n")
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr(
        command, "__file__", str(site / "nmt_cli" / "annexes" / "recipes" / "command.py")
    )
    assert command.recipes_folder() == site / "share" / "nmt" / "recipes"


def test_the_source_distribution_is_the_checkout(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / built("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    files = set(listed.stdout.splitlines()) or recipe_files()  # an unpacked distribution has no git
    assert files - names == set()


def built(kind: str, folder: Path) -> str:
    """Build the wheel or the source distribution of a copy of the checkout.

    Return its file's name.
    """
    copy = folder / "checkout"
    shutil.copytree(
        ROOT,
        copy,
        ignore=shutil.ignore_patterns(".*", "build", "dist", "runs", "*.egg-info", "__pycache__"),
    )
    for hidden in (".ci", ".github"):
        shutil.copytree(ROOT / hidden, copy / hidden, dirs_exist_ok=True)
    for hidden in (".dockerignore", ".gitignore"):
        shutil.copy(ROOT / hidden, copy)
    command = [sys.executable, "-c", BUILD.format(kind=kind), str(folder)]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]
