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

HERE = f"rank {os.environ.get('RANK') or 0} on {socket.gethostname()}"
SAMPLE = 128 << 20  # bytes that are written
TRY_LOCK = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


@dataclass(frozen=True)
class Check:
    name: str
    value: str
    remedy: str = ""  # empty: there is nothing to mend
    stops: bool = False  # whether the run would stop without the remedy
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        return "problem" if self.stops else "warning" if self.remedy else "ok"


def devices(world: World, precision: str) -> Check:
    """Measure a matrix product on all ranks at once, because some may share cores."""
    gpu, dtype = world.device.type == "cuda", getattr(torch, precision)
    name = torch.cuda.get_device_name(world.device) if gpu else f"CPU, {available_cores()} cores"
    published = published_rate(name, dtype) if gpu else None
    world.barrier()
    rates = world.gather((measured_rate(world.device, dtype), HERE))
    (slowest, place), (fastest, _) = min(rates), max(rates)
    least = max(0.8 * fastest, 0.5 * (published or 0.0))  # all wait for the slowest
    value = f"{name}: {slowest:.3g} TFLOP/s in {precision}"
    if world.size > 1:
        value = f"{world.size} x {value} ({place}) to {fastest:.3g}"
    remedy = (
        f"{place} should have {least:.3g}: look for other programs and power limits"
        if slowest < least
        else ""
    )
    if not gpu and (load := os.getloadavg()[0]) > (os.cpu_count() or 1):
        remedy = f"other programs are running (load {load:.1f}): end them"
    return Check(
        "devices", value, remedy, figures={"slowest_tflops": slowest, "fastest_tflops": fastest}
    )


def exchange(world: World, count: int, update: float | None) -> list[Check]:
    """Measure the sum of so many float32 numbers over all ranks; `update`: the seconds of an
    update, if known.
    """
    if world.size == 1:
        return []
    numbers, times = torch.zeros(count, device=world.device), []
    for _ in range(4):
        world.barrier()
        began = time.perf_counter()
        with explain_lost_ranks():
            dist.all_reduce(numbers)
        numbers[0].item()  # waits for the device
        times.append(time.perf_counter() - began)
    seconds = max(world.gather(min(times[1:])))  # the first time opens connections
    # Each rank sends and receives so much.
    rate = 2 * (world.size - 1) / world.size * numbers.nbytes / seconds
    value = f"{rate / 1e9:.2g} GB/s: {numbers.nbytes / 1e6:,.0f} MB of gradients in {seconds:.2g} s"
    slow = update is not None and seconds > update / 4
    remedy = (
        f"an update takes {update:.2g} s: larger --batch-tokens, or a faster network"
        if slow
        else ""
    )
    return [Check("ranks", value, remedy, figures={"bytes_per_second": rate, "seconds": seconds})]


def directory(world: World, place: Path, size: int = 0, number: int = 0) -> list[Check]:
    """Check disk and locks at `place` for so many checkpoints of `size` bytes."""
    with contextlib.ExitStack() as stack:
        folder, found = "", []
        if world.is_main:
            try:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=".nmt-", dir=place))
                found = [disk(Path(folder), size, number)]
            except OSError as error:
                remedy = "free some space" if folder else "give an --out where you may write"
                found = [Check("disk", f"{place}: {error.strerror}", remedy, stops=True)]
        folder = world.gather(folder)[0]
        return [*found, locks(world, Path(folder, "lock"))] if folder else found


def disk(folder: Path, size: int, number: int) -> Check:
    """Measure the speed of writing; raise an OSError if the disk is full."""
    free, needed = shutil.disk_usage(folder).free, number * size or SAMPLE
    sample, began = os.urandom(min(SAMPLE, free // 2 + 1)), time.perf_counter()
    with new_file(folder / "sample") as file:
        write_all(file.fileno(), sample, file.name)
    rate = len(sample) / (time.perf_counter() - began)
    value, remedy = f"{rate / 1e6:,.0f} MB/s, {free / 1e9:.3g} GB free", ""
    if number:
        value += f"; {number} checkpoints of {size / 1e9:.2g} GB, each in {size / rate:.2g} s"
    if needed > free:
        fewer = free // size - 2 if size else 0  # beside the best one and the one being written
        remedy = f"{needed / 1e9:.2g} GB are needed: free some{f', or give --keep-last {fewer}' if fewer > 0 else ''}"
    figures = {"bytes_per_second": rate, "free_bytes": free, "needed_bytes": needed}
    return Check("disk", value, remedy, needed > free, figures)


def locks(world: World, path: Path) -> Check:
    """Check that all ranks see a file of rank 0, and that no other process can take a lock that
    rank 0 has.
    """
    with contextlib.ExitStack() as stack:
        if world.is_main:
            try_lock(stack.enter_context(path.open("xb")).fileno())
        world.barrier()
        tried = subprocess.run([sys.executable, "-c", TRY_LOCK, str(path)], capture_output=True)
        found = world.gather((path.exists(), b"BlockingIOError" in tried.stderr, HERE))
    unseen, unlocked = ([each[2] for each in found if not each[part]] for part in (0, 1))
    if unseen:
        return Check(
            "locks",
            f"no file of rank 0 is seen by {unseen[0]}",
            "--out must be on a shared disk",
            stops=True,
        )
    if unlocked:
        return Check(
            "locks",
            f"not for {unlocked[0]}",
            "start a run only once: nothing keeps a second one out",
        )
    return Check("locks", "a second process is kept out")
