"""Random command lines: each ends with a documented exit code and a message, within its limits.

`nmt translate --input X` and the like may wait for a pipe, so files are regular ones, or absent.
"""

from __future__ import annotations

import inspect
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, get_args

import pytest
from long_form import LONG
from typer.models import OptionInfo

from nmt_cli.cli import command_names, load_command
from nmt_cli.flags import function_of
from nmt_cli.registry import KINDS, names

SECONDS, BYTES = 240, 6 << 30
"""Processor time and address space of a command."""

NUMBERS = [-1, 0, 1, 2, 2**31, 2**63 - 1, 10**30]
REALS = ["-1", "-0.0", "0", "1e-320", "0.3", "1", "1e308", "1e309", "inf", "nan"]
WORDS = ["", " ", "a\nb", "\udcff", *". .. ./ / x x.py - * **x x*0 x*3 [ {} ü %s".split()]
LONG_WORDS = ["a" * 300, "a/" * 3000, "9" * 5000]


class Place:
    """The files that commands are given."""

    def __init__(self, folder: Path, data: Path, run: Path) -> None:
        self.folder, self.data, self.run = folder, folder / "data", folder / "run"
        shutil.copytree(data, self.data)  # as a command may write to any of the paths
        shutil.copytree(run, self.run)
        self.lines = folder / "lines"
        self.lines.write_text("one hundred\n\ntwo  \u00a0 three \u2581x\n" * 3)
        for name, text in {
            "text.en": "one\ntwo two\nthree\n",
            "text.de": "eins\nzwei zwei\ndrei\n",
        }.items():
            (folder / name).write_text(text * 40)
        (folder / "trees").write_text("(TOP (S (NP (NN one)) (VP (VB is))))\n")
        (folder / "nbest").write_text("1\t-1.0\teins\n1\t-2.0\tzwei\n2\t-1.0\tdrei\n")
        self.paths = [
            *(
                folder,
                folder / "missing",
                folder / "missing" / "x",
                self.lines,
                folder / "trees",
                folder / "text",
            ),
            *(self.data, self.data / "manifest.json", self.run, self.run / "config.json"),
            self.run / "checkpoints" / "step-00000012",
            *("/dev/null", "/dev/full", "/", "/proc/self/mem"),
        ]

    def needed(self, command: str) -> list[Any]:
        """Words with which a command ends well."""
        small = (
            "--batch-tokens 300 --d-model 16 --d-ff 16 --num-layers 1 --sustained-tflops 1 "
            "--peak-tflops 1"
        )
        return {
            "prepare": [
                "--train",
                self.folder / "text",
                *"--source-lang en --target-lang de --vocab-size 40".split(),
            ],
            "train": [self.data, *small.split()],
            "average": [self.run],
            "translate": [self.run, "--input", self.lines, "--max-length", 5],
            "attention": [self.run, "--input", self.lines],
            "score-targets": [self.run, "--input", self.lines, "--target", self.lines],
            "serve": [self.run, "--host", "127.0.0.1"],
            "convert-command": ["marian --type transformer"],
            "doctor": [],
            "recipes": [],
            "tune": [self.data],
            "report": [self.run, "--sentences", 4, "--examples", 1],
            "import": [self.folder],
            "export": [self.run],
            "rerank": ["--input", self.folder / "nbest", "--mbr", "chrf"],
            "score": [self.lines, "--ref", self.lines],
            "score-trees": [self.folder / "trees", "--ref", self.folder / "trees"],
        }[command]

    def bounds(self, command: str) -> list[Any]:
        """Words at the end that keep the command short, and out of the way of the next one."""
        out = self.folder / f"out-{os.urandom(8).hex()}"
        return {
            "prepare": ["--workers", 1, "--out", out],
            "train": [*"--max-steps 2 --timeout-minutes 1 --out".split(), out],
            "translate": ["--output", out],
            "rerank": ["--output", out],
            "serve": ["--port", self.port],
            "tune": ["--minutes", 0.1, "--out", out],
            "convert-command": [],
            "score": [],
            "score-trees": [],
        }.get(command, ["--out", out])

    port = 0


@pytest.fixture(scope="module")
def place(tiny_data: Path, whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The files, and a port that is taken on all addresses, so that a server ends at its start."""
    place = Place(tmp_path_factory.mktemp("place"), tiny_data, whole)
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with socket.create_server(("", 0), family=family, dualstack_ipv6=both) as taken:
        place.port = taken.getsockname()[1]
        yield place


class Flag(NamedTuple):
    switches: list[str]  # none: an argument
    kind: str  # of the value: bool, int, float, Path or str
    choices: list[str]


@cache
def flags(command: str) -> list[Flag]:
    """The flags and arguments of a command."""
    declared_flags = []
    for parameter in inspect.signature(function_of(load_command(command), ())).parameters.values():
        hint, info = get_args(parameter.annotation)
        kind = next(kind for kind in ("bool", "int", "float", "Path", "str") if kind in str(hint))
        choices = (
            names(parameter.name) if parameter.name in KINDS else (info.metavar or "").split("|")
        )
        declared = (info.default, *info.param_decls) if isinstance(info, OptionInfo) else ()
        switches = [part for name in declared for part in name.split("/")]
        declared_flags.append(Flag(switches, kind, choices if len(choices) > 1 else []))
    return declared_flags


def words(draw: Random, flag: Flag, values: Sequence[Any]) -> list[Any]:
    """The flag with one of the values."""
    return ([draw.choice(flag.switches)] if flag.switches else []) + (
        [draw.choice(values)] if flag.kind != "bool" else []
    )


def lines(command: str, paths: list[Any]) -> Iterator[list[Any]]:
    """A few flags with values of any kind, always the same.

    With NMT_FAULTS=long every flag with every value first.
    """
    kinds = {
        "bool": [None],
        "int": NUMBERS,
        "float": REALS,
        "Path": paths,
        "str": [*WORDS, *LONG_WORDS],
    }
    for flag in flags(command) if LONG else ():
        for value in flag.choices or kinds[flag.kind]:
            yield words(Random(0), flag, [value])
    draw = Random(None if LONG else 1)
    for _ in range(300 if LONG else 8):
        chosen = draw.choices(flags(command), k=draw.choice([1, 1, 1, 2, 3]))
        odd = draw.choice([*kinds.values()])
        yield [
            word
            for flag in chosen
            for word in words(draw, flag, draw.choice([kinds[flag.kind], flag.choices or odd]))
        ]


@pytest.mark.timeout(24 * 3600 if LONG else 600)
@pytest.mark.parametrize("command", command_names())
def test_random_command_lines(command: str, forks: Any, place: Place) -> None:
    for odd in lines(command, place.paths):
        line = [command, *place.needed(command), *odd, *place.bounds(command)]
        started = forks.start(*line, limits=[SECONDS, BYTES])
        code = started.code()
        assert code in (0, 1, 2), f"exit code {code}: {line}\n{started.err}"
        assert code == 0 or started.err.strip(), f"no message: {line}"
        assert code != 2 or not started.out, f"usage error with results: {line}"
