"""Reports of benchmarks: the machine, Markdown tables and figures."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.samples import Spread
from nmt_cli import __version__

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_bf16", "amx_int8", "asimddp", "bf16", "i8mm")
"""The processor's features that decide how fast matrix products are."""
WIDTH = 116


def machine() -> str:
    """Return a sentence about this machine: processor, features, cores, memory, system."""
    fields = proc_fields("/proc/cpuinfo")
    have = set((fields.get("flags") or fields.get("Features") or "").split())
    processor = fields.get("model name") or platform.processor() or platform.machine()
    features = ", ".join(flag for flag in FLAGS if flag in have) or "none of interest"
    memory = int(proc_fields("/proc/meminfo").get("MemTotal", "0 kB").split()[0]) / 2**20
    return f"{processor} ({features}), {cores()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def proc_fields(path: str) -> dict[str, str]:
    """Return the first value of each field of a file such as /proc/cpuinfo; nothing if there is no such file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        return {}
    fields: dict[str, str] = {}
    for name, value in re.findall(r"^([^:\n]+?)\s*:[ \t]*(.*)$", text, re.MULTILINE):
        fields.setdefault(name, value)
    return fields


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def digits(value: float) -> str:
    """Return a number of three digits or more: 0.123, 12.3, 1,230."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def shown(values: Spread | None) -> str:
    """Return the median, and the quartiles in brackets."""
    return f"{digits(values.median)} ({digits(values.low)}-{digits(values.high)})" if values else ""


def own_version() -> dict[str, str]:
    """Return the versions of nmt and PyTorch, as nmt's."""
    return {"nmt": f"{__version__}, torch {importlib.metadata.version('torch')}"}


@dataclass
class Report:
    """The report of a benchmark, which becomes `DIRECTORY/NAME.md` with its figures beside it.

    Args:
        name: of the benchmark.
        method: a sentence or more about what was measured.
    """

    name: str
    method: str
    versions: dict[str, str] = field(default_factory=own_version)  # by program
    parts: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)  # matplotlib's, by file name

    def add(self, *parts: str) -> None:
        """Add paragraphs, titles or tables."""
        self.parts += parts

    def add_figure(self, name: str, about: str, figure: Any) -> None:
        """Add a figure, `NAME.svg`, described by `about`."""
        self.figures[f"{name}.svg"] = figure
        self.parts.append(f"![{about}]({name}.svg)")

    def text(self, when: datetime.date | None = None, command: Sequence[str] = sys.orig_argv[1:]) -> str:
        """Return the Markdown: date, machine, versions, command, method, and the parts."""
        versions = "; ".join(f"{name} {version}" for name, version in self.versions.items())
        paragraphs = [
            f"{when or datetime.date.today()}. Machine: {machine()}. Python {platform.python_version()}. {versions}.",
            self.method,
        ]
        words = " ".join(["python", *(re.sub(r"(^|=)/\S*/", r"\1", word) for word in command)])  # not where they are
        lines = textwrap.wrap(
            words, WIDTH - 6, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
        )
        joined = " \\\n".join(lines)
        return "\n\n".join([*map(paragraph, paragraphs), f"```\n{joined}\n```", *self.parts]) + "\n"

    def write(self, folder: Path) -> None:
        """Write the report and its figures to `folder`."""
        (folder / f"{self.name}.md").write_text(self.text(), encoding="utf-8")
        for name, figure in self.figures.items():
            save_figure(figure, folder / name)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib as SVG, the same bytes whenever it is drawn."""
    figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})


def add_options(parser: argparse.ArgumentParser, rounds: int) -> None:
    """Add the options of benchmarks of several rounds."""
    parser.add_argument("--rounds", type=positive, default=rounds, metavar="N", help=f"default: {rounds}")
    add_places(parser)


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add the options for the files of a report."""
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks"), metavar="DIRECTORY")


def add_speed_options(parser: argparse.ArgumentParser, rounds: int, seconds: float) -> None:
    """Add the options of benchmarks of speed."""
    add_options(parser, rounds)
    parser.add_argument("--seconds", type=float, default=seconds, metavar="X", help="least time of a sample")
    parser.add_argument("--cores", type=positive, default=cores(), metavar="N", help="default: all")


def positive(text: str) -> int:
    """Read a number of at least 1 from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"it must be at least 1, not {number}")
    return number


def begin(options: argparse.Namespace, name: str) -> Path:
    """Return the path for the samples of the benchmark `name`; an older file of that name is removed."""
    options.out.mkdir(parents=True, exist_ok=True)
    path: Path = options.out / f"{name}.jsonl"
    path.unlink(missing_ok=True)
    return path


def paragraph(text: str) -> str:
    """Return `text` in lines that fit in a page."""
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
