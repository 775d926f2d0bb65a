"""Runs of `nmt train` that `gpu.py` measures."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks import kernels
from benchmarks.peers.serve import Size
from benchmarks.synthetic import (
    ENDLESS,
    NOTHING_ELSE,
    Pair,
    flag_words,
    model_flags,
    random_pairs,
    write_corpus,
)
from benchmarks.workers import ROOT
from nmt_cli.training.run_directory import METRICS

PROFILED = 3
"""Steps whose kernels are recorded. They are slower."""


class NotAvailable(Exception):
    """A section needs what is not there."""


@dataclass
class Bench:
    """What the sections share."""

    device: torch.device
    tiny: bool
    folder: Path
    ends: float  # the time at which everything must be done, of the monotonic clock
    models: dict[str, Size]
    tokens: int  # of an update
    steps: int
    earlier: Path | None = None  # the figures of part A
    text: Path | None = None  # the directory of Multi30k
    pairs: list[Pair] = field(default_factory=list)
    fastest: float = 0.0

    def peak(self) -> float:
        """Return the operations a second of the fastest product, from part A or measured now."""
        if not self.fastest and self.earlier and self.earlier.exists():
            findings = json.loads(self.earlier.read_text(encoding="utf-8"))["found"]
            rates = (row for section, row in findings if section == "products" and "forward" in row)
            self.fastest = 1e12 * max((max(list(row.values())[1:]) for row in rates), default=0.0)
        if not self.fastest:
            self.fastest = kernels.large_product(256 if self.tiny else 8192, self.device)
        return self.fastest

    def data(self) -> Path:
        """Return prepared data with enough sentences for the longest run.

        All models have one vocabulary.
        """
        path = self.folder / "data"
        vocabulary = next(iter(self.models.values())).vocabulary
        if not path.exists():
            count = 12 * self.steps if self.tiny else self.steps * self.tokens // 20
            self.pairs = random_pairs(count, vocabulary, mean=6 if self.tiny else 25)
            write_corpus(path, self.pairs, vocabulary)
        return path

    def train(
        self,
        name: str,
        size: Size,
        *words: str,
        steps: int = 0,
        tokens: int = 0,
        log_every: int = ENDLESS,
        settings: Mapping[str, str] | None = None,
    ) -> Run:
        """Run `nmt train` for some steps. Return what was recorded.

        Args:
            name: of the run; a name that was used is a run that is resumed.
            words: more of the command line.
            log_every: a log line waits for the GPU, so more of them slow the steps down.
            settings: environment variables.

        Raises:
            NotAvailable: the run failed; the message is the end of what it said.
        """
        steps = steps or self.steps
        tokens = tokens or self.tokens
        record = self.folder / f"{name}.json"
        warm = steps // 2 if self.tiny else min(20, steps // 2)
        flags = {
            **model_flags(size),
            **NOTHING_ELSE,
            "batch_tokens": tokens,
            "max_steps": steps,
            "log_every": log_every,
            "device": self.device.type,
            "import": "benchmarks.probe",
            "schedule": "probed",
            "record": record,
            "warm_after": warm,
            "profiled": PROFILED if steps > warm + PROFILED else 0,
        }
        out = self.folder / name
        began = time.time()
        self.nmt("train", self.data(), "--out", out, *words, flags=flags, **(settings or {}))
        lines = [
            json.loads(text) for text in (out / METRICS).read_text(encoding="utf-8").splitlines()
        ]
        return Run(json.loads(record.read_text(encoding="utf-8")), lines, began, warm)

    def nmt(self, *words: object, flags: Mapping[str, Any], **settings: str) -> str:
        """Run `nmt` with flags by name.

        Return what it wrote to standard output. Raises NotAvailable if it fails.
        """
        return self.execute("nmt_cli", *words, *flag_words(flags), **settings)

    def execute(self, *words: object, **settings: str) -> str:
        """Run a module.

        Return what it wrote to standard output. Raises NotAvailable if it fails.
        """
        return self.output(sys.executable, "-m", *words, **settings)

    def output(self, *words: object, **settings: str) -> str:
        """Run a command.

        Return what it wrote to standard output. Raises NotAvailable if it fails.
        """
        command = [*map(str, words)]
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": paths, **settings}
        left = max(1.0, self.ends - time.monotonic())
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=left
            )
        except subprocess.TimeoutExpired as error:
            raise NotAvailable("there was no time left") from error
        if done.returncode:
            raise NotAvailable(" ".join((done.stdout + done.stderr).strip().splitlines()[-3:]))
        return done.stdout


@dataclass(frozen=True)
class Run:
    """What was recorded of a run."""

    record: dict[str, Any]  # `benchmarks.probe`'s
    metrics: list[dict[str, Any]]  # a log line each
    began: float
    warm_after: int

    @property
    def seconds(self) -> list[float]:
        """The time of each step after the first ones and the profiled ones."""
        times = [after - before for before, after in itertools.pairwise(self.record["starts"])]
        return times[self.warm_after + PROFILED + 1 :] or times[-1:]

    @property
    def median(self) -> float:
        """Seconds of the median step."""
        return statistics.median(self.seconds)

    @property
    def until_first_step(self) -> float:
        """Seconds from the start of the process to the end of the first step."""
        return float(self.record["starts"][1] - self.began)

    @property
    def rate(self) -> float:
        """Target tokens a second, at the median step."""
        last = self.metrics[-1]
        return float(last["target_tokens"] / last["step"] / self.median)
