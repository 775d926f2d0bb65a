"""A command for each part of a corpus on a Ray cluster: docs/recipes.md, "Many parts". {} is the number of the part.

    python recipes/ray_parts.py [--cpus N] [--gpus N] 01-49 OUT COMMAND ...

A part is skipped if its OUT exists, so the same command again makes the ones that are missing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

import ray


def run(command: list[str], folder: str) -> int:
    return subprocess.run(command, cwd=folder).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=float, default=1, help="CPU cores of a part")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of a part")
    parser.add_argument("parts", help="the first and the last number, such as 00-49")
    parser.add_argument("out", help="the file or directory that the command makes")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    first, last = options.parts.split("-")
    numbers = [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
    missing = [number for number in numbers if not Path(options.out.replace("{}", number)).exists()]
    remote = ray.remote(num_cpus=options.cpus, num_gpus=options.gpus)(run)
    tasks = [remote.remote([word.replace("{}", number) for word in options.command], os.getcwd()) for number in missing]
    codes = dict(zip(missing, ray.get(tasks), strict=True))
    if failed := [number for number, code in codes.items() if code]:
        parser.exit(1, f"parts {', '.join(failed)} failed\n")


if __name__ == "__main__":
    main()
