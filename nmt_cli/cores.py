"""The CPU cores that this process may use, and sizes that suit a device."""

from __future__ import annotations

import contextlib
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

READ_AHEAD = 1024  # of a CPU, and of each of several ranks, which share the windows of a file

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Sizes:
    """Sizes that suit a device."""

    batch_tokens: int  # of a batch, on each side
    # Of all sentences in a batch of a search. It bounds the memory for the scores of a step.
    hypotheses: int
    logit_rows: int  # tokens for which logits exist at a time
    read_ahead: int = READ_AHEAD  # lines that are sorted by length at once


def available_cores() -> int:
    """Return the number of cores that the process may use, by its affinity and its CPU quota.

    A quota (`docker run --cpus`, limits in Kubernetes) is rounded up. Only control groups of
    version 2 have one here.
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # Linux
        cores = len(os.sched_getaffinity(0))
    for quota in _quotas():
        cores = min(cores, max(1, math.ceil(quota)))
    return cores


def _quotas() -> list[float]:
    """Return the limits of the control group, and of each around it, in CPU seconds per second."""
    quotas = []
    with contextlib.suppress(OSError):
        match = re.search(r"^0::/(.*)$", _OWN_GROUP.read_text(), re.MULTILINE)
        group = _GROUPS / match[1] if match else _GROUPS
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # ValueError: it says "max"
                quota, period = map(float, (folder / "cpu.max").read_text().split())
                quotas.append(quota / period)
    return quotas
