"""The wheel has all that the annexes need: in an environment of its own, without a checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "nmt_cli", "recipes")

PLUGIN_OF_VERSION_1 = """
from nmt_cli.registry import option, register
from nmt_cli.table2.encoder_decoder import EncoderDecoder
"""

Nmt = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Nmt:
    """Runs the `nmt` of a fresh environment with this environment's other packages."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [
        *pip,
        *"wheel --no-deps --no-build-isolation --no-index --wheel-dir".split(),
        folder,
        source,
    ]
    subprocess.run(build, check=True, timeout=300)
    environment = folder / "environment"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=300
    )
    python = environment / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    install = [
        pip[0],
        "-m",
        "pip",
        "--python",
        python,
        *"--quiet install --no-deps --no-index".split(),
        wheel,
    ]
    subprocess.run(install, check=True, timeout=300)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = environment / "lib" / version / "site-packages" / "packages.pth"
    packages.write_text(
        "\n".join([sysconfig.get_paths()["purelib"], *map(str, other_packages())]), encoding="utf-8"
    )

    def run(
        *arguments: object, path: Path = folder, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        command = [environment / "bin" / "nmt", *map(str, arguments)]
        variables = {
            "PYTHONPATH": str(path),
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "COLUMNS": "120",
        }
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", env=variables, cwd=folder, timeout=300
        )
        assert done.returncode == code, done.stderr
        return done

    return run


def other_packages() -> list[Path]:
    """Return the directories of packages on this program's path, without checkouts."""
    return [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]


def test_recipes_come_with_the_package(installed: Nmt, tmp_path: Path) -> None:
    listing = installed("recipes").stdout
    assert "quickstart" in listing
    installed("recipes", "--out", tmp_path / "recipes")
    assert (tmp_path / "recipes" / "quickstart.sh").read_bytes() == (
        ROOT / "recipes" / "quickstart.sh"
    ).read_bytes()


def test_a_report_has_its_page(installed: Nmt, run: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    installed("report", run, "--out", page)
    assert "<script" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "command", ["serve", "rerank", "score-targets", "doctor", "import", "export", "attention"]
)
def test_commands_of_annexes_have_help(installed: Nmt, command: str) -> None:
    assert f"nmt {command}" in installed(command, "--help").stdout


def test_presets_of_annexes_are_listed(installed: Nmt) -> None:
    listing = installed("train", "--list-presets").stdout
    assert {"base", "big"} <= set(listing.split())
    assert "gnmt" in listing


def test_a_plugin_of_version_1_learns_where_names_are(installed: Nmt, tmp_path: Path) -> None:
    (tmp_path / "bag.py").write_text(PLUGIN_OF_VERSION_1, encoding="utf-8")
    message = installed("train", "--import", "bag", "--help", path=tmp_path, code=2).stderr
    assert "nmt_cli.plugins" in message
