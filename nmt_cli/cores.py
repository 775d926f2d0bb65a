"""The CPU cores that this process may use."""

from __future__ import annotations

import contextlib
import math
import os
import re
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def available_cores() -> int:
    """Return the number of cores that the process may run on, or the CPU quota of its container, if
    that is less.

    A quota (`docker run --cpus`, limits in Kubernetes) is rounded up, and known of control groups
    of version 2.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min([cores, *(max(1, math.ceil(quota)) for quota in _quotas())])


def _quotas() -> list[float]:
    """Return the CPU seconds per second that the control group, and each around it, may use; none
    is no limit.
    """
    quotas = []
    with contextlib.suppress(OSError):
        own = re.search(r"^0::/(.*)$", _OWN_GROUP.read_text(), re.MULTILINE)
        group = _GROUPS / (own[1] if own else "")
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # ValueError: it says "max"
                quota, period = map(float, (folder / "cpu.max").read_text().split())
                quotas.append(quota / period)
    return quotas
