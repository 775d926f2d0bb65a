"""Reports of benchmarks: command line, machine and Markdown tables."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.samples import Sample, Spread, ratio
from nmt_cli import __version__

# The processor's features that decide how fast matrix products are.
FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "amx_bf16",
    "amx_int8",
    "asimddp",
    "bf16",
    "i8mm",
)
NUMBERS = {"family": "cpu family", "model": "model"}
WIDTH = 116
LEAST_ROUNDS = 3
"""Of a report: fewer have no quartiles."""


def parser(name: str, about: str | None, rounds: int | None = None) -> argparse.ArgumentParser:
    """Return the parser of `python -m benchmarks.NAME`, with --out and perhaps --rounds."""
    arguments = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--out", type=Path, default=Path("runs/benchmarks"), metavar="DIRECTORY")
    if rounds is not None:
        arguments.add_argument(
            "--rounds", type=positive, default=rounds, metavar="N", help=f"default: {rounds}"
        )
    return arguments


def positive(text: str) -> int:
    """Read a number of at least 1 from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"it must be at least 1, not {number}")
    return number


def machine() -> str:
    """Return a sentence about this machine: processor, features, cores, memory, system."""
    fields = proc_fields("/proc/cpuinfo")
    have = set((fields.get("flags") or fields.get("Features") or "").split())
    processor = fields.get("model name") or platform.processor() or platform.machine()
    # A name can be many.
    numbers = [f"{name} {fields[field]}" for name, field in NUMBERS.items() if field in fields]
    features = (
        ", ".join([*numbers, *(flag for flag in FLAGS if flag in have)]) or "none of interest"
    )
    memory = int(proc_fields("/proc/meminfo").get("MemTotal", "0 kB").split()[0]) / 2**20
    return (
        f"{processor} ({features}), {cores()} cores, {memory:.0f} GiB, {platform.system()} "
        f"{platform.machine()}"
    )


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def proc_fields(path: str) -> dict[str, str]:
    """Return the first value of each field of a file such as /proc/cpuinfo.

    Nothing if there is no such file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict(reversed(re.findall(r"^([^:\n]+?)\s*:[ \t]*(.*)$", text, re.MULTILINE)))


def own_version() -> str:
    """Return the versions of nmt and PyTorch."""
    return f"nmt {__version__}, torch {importlib.metadata.version('torch')}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. All columns but the first are aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ratios(
    samples: Sequence[Sample], cases: Mapping[str, Mapping[str, Any]], systems: Iterable[str]
) -> Iterator[str]:
    """Yield a table of nmt's speeds divided by the other systems' speeds.

    Each case is a column.
    """
    our_systems = [system for system in systems if system.startswith("nmt ")]
    pairs = [(mine, peer) for mine in our_systems for peer in systems if peer not in our_systems]
    if pairs:
        yield "Ratio of the speeds:"
        yield table(
            ["", *cases],
            [
                [
                    f"{mine} / {peer}",
                    *(shown(ratio(samples, case, mine, peer)) for case in cases.values()),
                ]
                for mine, peer in pairs
            ],
        )


def digits(value: float) -> str:
    """Return a number of three digits or more: 0.123, 12.3, 1,230."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def shown(values: Spread | None) -> str:
    """Return the median, and the quartiles in brackets."""
    return f"{digits(values.median)} ({digits(values.low)}-{digits(values.high)})" if values else ""


def publish(folder: Path, name: str, rounds: int, *contents: Any) -> None:
    """Write the report FOLDER/NAME.md and print its path.

    With too few rounds, print the report instead.
    """
    if rounds < LEAST_ROUNDS:
        print(page(*contents))
        print(
            f"not written to {folder}: a report needs --rounds {LEAST_ROUNDS} or more",
            file=sys.stderr,
        )
    else:
        print(write(folder, name, *contents))


def write(
    folder: Path, name: str, method: str, parts: Iterable[str], versions: Iterable[str] = ()
) -> Path:
    """Write the report FOLDER/NAME.md. Return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(f"{page(method, parts, versions)}\n", encoding="utf-8")
    return path


def page(method: str, parts: Iterable[str], versions: Iterable[str] = ()) -> str:
    """Return a report: date, machine, versions, method, command and the parts."""
    about = "; ".join(dict.fromkeys([own_version(), *versions]))
    # No directories.
    words = " ".join(
        ["python", *(re.sub(r"(^|=)/\S*/", r"\1", word) for word in sys.orig_argv[1:])]
    )
    lines = textwrap.wrap(
        words, WIDTH - 6, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    command = " \\\n".join(lines)
    head = (
        f"{datetime.date.today()}. Machine: {machine()}. Python {platform.python_version()}. "
        f"{about}."
    )
    return "\n\n".join([paragraph(head), paragraph(method), f"```\n{command}\n```", *parts])


def paragraph(text: str) -> str:
    """Return `text` in lines that fit in a page."""
    return textwrap.fill(
        " ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False
    )
