"""A schedule for `nmt train` that records the steps.

Its flags are `--import benchmarks.probe --schedule probed --record FILE`.

It is asked for the learning rate at the start of each update, so the time between two calls is that
of a step. FILE is written when the program ends.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.kernels import kernel_times
from nmt_cli.fast.cuda.device import Fast
from nmt_cli.registry import option, register

if os.environ.get("NMT_BENCHMARK_PADDED"):  # padded sentences in place of bins, to compare with
    Fast.takes_bins = lambda *_: False  # type: ignore[method-assign]

LAUNCHES = (
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cudaGraphLaunch",
)


@dataclass(frozen=True)
class ProbedConfig:
    """Settings of `Probed`."""

    record: str = option("", "File of the record.")
    warm_after: int = option(
        20, "Steps after which nothing should be compiled; the launches are counted then."
    )
    profiled: int = option(3, "Steps of which the launches are counted; 0 for none.")


@register("schedule", "probed", ProbedConfig)
class Probed:
    """A constant learning rate. Records when each step starts."""

    def __init__(self, config: ProbedConfig, *, d_model: int) -> None:
        self.config = config
        self.starts: list[float] = []  # by the system's clock, which other processes share
        self.step = 0
        self.profile: Any = None
        self.found: dict[str, Any] = {}
        atexit.register(self.write)

    def __call__(self, step: int) -> float:
        if step > self.step:
            self.step = step
            self.starts.append(time.time())
            self.observe(len(self.starts))
        return 1e-4

    def observe(self, steps: int) -> None:
        """Count what has been compiled, and kernel launches, once the run is warm."""
        if steps == self.config.warm_after:
            self.found["graphs_when_warm"] = compiled_graphs()
            if self.config.profiled and torch.cuda.is_available():
                self.profile = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
                self.profile.start()
        if steps == self.config.warm_after + self.config.profiled and self.profile:
            running = self.stop_profile()
            counts = {event.key: event.count for event in running.key_averages()}
            self.found["launches"] = (
                sum(counts.get(name, 0) for name in LAUNCHES) / self.config.profiled
            )
            self.found["kernels"] = kernel_times(running, self.config.profiled)

    def stop_profile(self) -> Any:
        """Stop and return the profile. The process crashes if it ends with one that runs."""
        running, self.profile = self.profile, None
        running.stop()
        return running

    def write(self) -> None:
        """Write what was recorded."""
        if self.profile:
            self.stop_profile()
        self.found |= {"starts": self.starts, "graphs": compiled_graphs()}
        if torch.cuda.is_available():
            self.found["memory"] = torch.cuda.max_memory_allocated()
        Path(self.config.record).write_text(json.dumps(self.found), encoding="utf-8")


def compiled_graphs() -> int:
    """Return the number of graphs that torch.compile has made so far."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
