"""Write requirements-lock.txt: what `nmt-cli[serve]` needs on Linux x86_64, with the hashes of the
files.

    python .ci/lock.py    asks the package index; a few minutes

The versions are those of constraints.txt. What PyTorch adds on Linux has the newest versions that
it allows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements-lock.txt"
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(5, 29)]
PLATFORMS += [f"manylinux{year}_x86_64" for year in ("1", "2010", "2014")]
HEAD = """\
# What `nmt-cli[serve]` needs on Linux x86_64 with Python 3.11 to 3.13. Its use is in SECURITY.md.
# `make lock` writes it.
"""


def needed() -> list[str]:
    """Return the requirements of the package and of its extra `serve`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["serve"]]


def chosen(python: str) -> list[tuple[str, str]]:
    """Return the name with its version, and the hash, of each file that pip would install with this
    Python.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        flags = [
            "--dry-run",
            "--ignore-installed",
            "--quiet",
            "--only-binary",
            ":all:",
            "--target",
            folder,
        ]
        flags += [
            "--python-version",
            python,
            "--constraint",
            str(ROOT / "constraints.txt"),
            "--report",
            str(report),
        ]
        flags += [word for platform in PLATFORMS for word in ("--platform", platform)]
        subprocess.run([sys.executable, "-m", "pip", "install", *flags, *needed()], check=True)
        files = json.loads(report.read_text(encoding="utf-8"))["install"]
    names = [f"{file['metadata']['name']}=={file['metadata']['version']}" for file in files]
    digests = [file["download_info"]["archive_info"]["hashes"]["sha256"] for file in files]
    return list(zip(names, digests, strict=True))


def main() -> None:
    hashes = defaultdict[str, set[str]](set)
    for python in PYTHONS:
        for requirement, digest in chosen(python):
            hashes[requirement].add(digest)
    lines = [
        " \\\n    ".join(
            [requirement, *(f"--hash=sha256:{digest}" for digest in sorted(hashes[requirement]))]
        )
        for requirement in sorted(hashes, key=str.lower)
    ]
    LOCK.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
