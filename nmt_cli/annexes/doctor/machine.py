"""Checks of the machine: its devices, the exchange between ranks, disk and locks."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist

from nmt_cli.annexes.doctor.rates import published_rate
from nmt_cli.cores import available_cores
from nmt_cli.distributed import World, explain_lost_ranks
from nmt_cli.files.durable import new_file, write_all
from nmt_cli.files.staging import try_lock
from nmt_cli.training.costs import measured_rate
from nmt_cli.training.reporter import duration

HERE = f"rank {os.environ.get('RANK') or 0} on {socket.gethostname()}"
SAMPLE = 128 << 20  # bytes that are written
TRY_LOCK = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


@dataclass(frozen=True)
class Check:
    """The result of a check."""

    name: str
    value: str
    remedy: str = ""  # empty: there is nothing to mend
    stops: bool = False  # whether the run would stop without the remedy
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.stops:
            return "problem"
        return "warning" if self.remedy else "ok"


def projected(
    name: str, value: str, seconds: float, ranks: int, price: float | None, **figures: float
) -> Check:
    """Return how long the ranks take, and what their hours cost."""
    hours = seconds / 3600
    device_hours = ranks * hours
    figures |= {"hours": hours, "device_hours": device_hours}
    value += f": {duration(seconds)}, {device_hours:.3g} device-hours"
    if price is not None:
        cost = price * device_hours
        figures["cost"] = cost
        value += f", cost {cost:,.2f}"
    return Check(name, value, figures=figures)


def devices(world: World, precision: str) -> Check:
    """Measure a matrix product on all ranks at once, because some may share cores."""
    dtype = getattr(torch, precision)
    is_gpu = world.device.type == "cuda"
    published = None
    if is_gpu:
        name = torch.cuda.get_device_name(world.device)
        published = published_rate(name, dtype)
    else:
        name = f"CPU, {available_cores()} cores"
    world.barrier()
    rates = world.gather((measured_rate(world.device, dtype), HERE))
    slowest, place_of_slowest = min(rates)
    fastest, _ = max(rates)
    value = f"{name}: {slowest:.3g} TFLOP/s in {precision}"
    if world.size > 1:
        value = f"{world.size} x {value} ({place_of_slowest}) to {fastest:.3g}"
    least = 0.8 * fastest  # all wait for the slowest
    if published is not None:
        least = max(least, 0.5 * published)
    remedy = ""
    if slowest < least:
        remedy = (
            f"{place_of_slowest} should have {least:.3g}: look for other programs and power limits"
        )
    if not is_gpu:
        load, _, _ = os.getloadavg()
        if load > (os.cpu_count() or 1):
            remedy = f"other programs are running (load {load:.1f}): end them"
    figures = {"slowest_tflops": slowest, "fastest_tflops": fastest}
    return Check("devices", value, remedy, figures=figures)


def exchange(world: World, count: int, update: float | None) -> list[Check]:
    """Measure the sum of so many float32 numbers over all ranks.

    Args:
        update: the seconds of an update, if known.
    """
    if world.size == 1:
        return []
    numbers = torch.zeros(count, device=world.device)
    times = []
    for _ in range(4):
        world.barrier()
        start = time.perf_counter()
        with explain_lost_ranks():
            dist.all_reduce(numbers)
        numbers[0].item()  # waits for the device
        times.append(time.perf_counter() - start)
    seconds = max(world.gather(min(times[1:])))  # the first time opens connections
    exchanged = 2 * (world.size - 1) / world.size * numbers.nbytes  # by each rank
    rate = exchanged / seconds
    value = f"{rate / 1e9:.2g} GB/s: {numbers.nbytes / 1e6:,.0f} MB of gradients in {seconds:.2g} s"
    remedy = ""
    if update is not None and seconds > update / 4:
        remedy = f"an update takes {update:.2g} s: larger --batch-tokens, or a faster network"
    return [Check("ranks", value, remedy, figures={"bytes_per_second": rate, "seconds": seconds})]


def directory(world: World, place: Path, size: int = 0, number: int = 0) -> list[Check]:
    """Check disk and locks at `place` for so many checkpoints of `size` bytes."""
    checks = []
    with contextlib.ExitStack() as stack:
        folder = ""
        if world.is_main:
            try:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=".nmt-", dir=place))
                checks.append(disk(Path(folder), size, number))
            except OSError as error:
                remedy = "free some space" if folder else "give an --out where you may write"
                checks.append(Check("disk", f"{place}: {error.strerror}", remedy, stops=True))
        folder = world.gather(folder)[0]
        if folder:
            checks.append(locks(world, Path(folder, "lock")))
    return checks


def disk(folder: Path, size: int, number: int) -> Check:
    """Measure the speed of writing.

    Raises:
        OSError: the disk is full.
    """
    free = shutil.disk_usage(folder).free
    needed = number * size or SAMPLE
    sample = os.urandom(min(SAMPLE, free // 2 + 1))
    start = time.perf_counter()
    with new_file(folder / "sample") as file:
        write_all(file.fileno(), sample, file.name)
    rate = len(sample) / (time.perf_counter() - start)
    value = f"{rate / 1e6:,.0f} MB/s, {free / 1e9:.3g} GB free"
    if number:
        value += f"; {number} checkpoints of {size / 1e9:.2g} GB, each in {size / rate:.2g} s"
    remedy = ""
    if needed > free:
        remedy = f"{needed / 1e9:.2g} GB are needed: free some"
        if size:
            fewer = free // size - 2  # beside the best one and the one being written
            if fewer > 0:
                remedy += f", or give --keep-last {fewer}"
    figures = {"bytes_per_second": rate, "free_bytes": free, "needed_bytes": needed}
    return Check("disk", value, remedy, needed > free, figures)


def locks(world: World, path: Path) -> Check:
    """Check that all ranks see a file of rank 0, and that its lock keeps other processes out."""
    with contextlib.ExitStack() as stack:
        if world.is_main:
            try_lock(stack.enter_context(path.open("xb")).fileno())
        world.barrier()
        attempt = subprocess.run([sys.executable, "-c", TRY_LOCK, str(path)], capture_output=True)
        is_refused = b"BlockingIOError" in attempt.stderr
        results = world.gather((path.exists(), is_refused, HERE))
    for is_seen, _, place in results:
        if not is_seen:
            value = f"no file of rank 0 is seen by {place}"
            return Check("locks", value, "--out must be on a shared disk", stops=True)
    for _, is_refused, place in results:
        if not is_refused:
            remedy = "start a run only once: nothing keeps a second one out"
            return Check("locks", f"not for {place}", remedy)
    return Check("locks", "a second process is kept out")
