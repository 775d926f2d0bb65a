"""`nmt doctor`: the checks of a run's memory and time, and all checks in their order."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from nmt_cli.annexes.doctor import machine
from nmt_cli.annexes.doctor.cost import checkpoint_bytes, checkpoints_on_disk, peak_memory
from nmt_cli.annexes.doctor.machine import Check
from nmt_cli.annexes.doctor.resume import resume
from nmt_cli.config import RunConfig
from nmt_cli.device import fast
from nmt_cli.distributed import World, join_world
from nmt_cli.errors import TrainingError, UsageError, environment_number, main_rank_reports
from nmt_cli.streams import say
from nmt_cli.training.memory import fits, largest
from nmt_cli.training.messages import about_kernels, parameters_of
from nmt_cli.training.reporter import table
from nmt_cli.training.run import Run
from nmt_cli.training.settings import RunOptions
from nmt_cli.training.start import configuration, prepare_torch, run_of
from nmt_cli.training.trainer import Trainer
from nmt_cli.training.updates import AHEAD

GRADIENTS = 25_000_000  # numbers that the ranks exchange if there is no DATA
# Updates that are timed, and the seconds after which no more are made.
FEWEST_UPDATES = 4
MOST_UPDATES = 60
SECONDS = 15.0


def examine(
    options: RunOptions, flags: Mapping[str, Any], price: float | None, as_json: bool
) -> None:
    """Print the checks.

    Raises:
        TrainingError: the run would stop.
        NmtError: the settings are wrong, as `nmt train` says.
    """
    with main_rank_reports():
        place = (options.out or Path()).absolute()
        while not place.exists():
            place = place.parent
        if not place.is_dir():
            raise UsageError(f"--out {options.out}: {place} is not a directory")
        config = configuration(options, flags)
    with join_world(config.training.device, config.training.timeout_minutes) as world:
        prepare_torch(config.training, world.device)
        if world.is_main:
            say("measuring ...")
        if options.data:
            checks = checks_of_run(options, config, flags, place, world, price)
        else:
            checks = checks_of_machine(place, world)
    if not world.is_main:
        return
    if options.data and not any(check.stops for check in checks):
        checks.append(resume(options, config, place, world.device))
    show(checks, as_json)
    problems = [check.name for check in checks if check.stops]
    if problems:
        raise TrainingError(f"this run would stop: {', '.join(problems)}")


def checks_of_machine(place: Path, world: World) -> list[Check]:
    """Return the checks that all ranks make together without data."""
    precision = fast(world.device).precision(torch.nn.Module(), deterministic=False)
    return [
        machine.devices(world, precision),
        *machine.exchange(world, GRADIENTS, None),
        *machine.directory(world, place),
    ]


def checks_of_run(
    options: RunOptions,
    config: RunConfig,
    flags: Mapping[str, Any],
    place: Path,
    world: World,
    price: float | None,
) -> list[Check]:
    """Return the checks that all ranks make together with data."""
    run = run_of(options, config, flags, world, place, quiet=True)
    run.check_agreement()
    checks = [machine.devices(world, run.trainer.objective.precision)]
    if run.trainer.fast.kernels:
        checks.append(Check("kernels", about_kernels(run.trainer.fast.kernels)))
    check_of_memory = memory(run)
    checks.append(check_of_memory)
    seconds = None
    if not check_of_memory.stops:
        micro_batches = int(check_of_memory.figures["micro_batches"])
        seconds = seconds_of_update(run, micro_batches)
        if run.plan.text_changes():
            checks.append(text(seconds_of_text(run, micro_batches), seconds))
    count, learning = parameters_of(run.model)
    checks += machine.exchange(world, learning, seconds)
    size = checkpoint_bytes(config, count, learning)
    number = checkpoints_on_disk(run.config, run.length.steps)
    checks += machine.directory(world, place, size, number)
    if seconds is not None:
        checks.append(projection(run.length.steps, seconds, world.size, price))
    return checks


def memory(run: Run) -> Check:
    """Run the largest micro-batches that fit. The figures have their number in an update."""
    world = run.world
    wanted = run.trainer.updates.micro_batches
    count = run.choose_micro_batches()
    remedy = ""
    if world.device.type == "cuda":  # training finds the number, too
        _, room = torch.cuda.mem_get_info(world.device)
    else:
        room = memory_of_process()
        if not run.config.model_parallel:
            count = max(world.gather(fitting_on_cpu(run.trainer, room)))
        if count > wanted:
            remedy = f"too large micro-batches: give --micro-batches {count}"
    peak = peak_memory(world.device)
    value = f"{peak / 1e9:.2f} of {room / 1e9:.3g} GB; micro-batches of an update: {count}"
    figures = {"micro_batches": count, "peak_bytes": peak, "bytes": room}
    return Check("memory", value, remedy, stops=remedy != "", figures=figures)


def fitting_on_cpu(trainer: Trainer, room: int) -> int:
    """Return the least number of micro-batches that fit into `room` bytes.

    It is not less than in the settings.
    """
    wanted = trainer.updates.micro_batches
    peaks = [0]
    # Small ones first: where memory ends, the system would end this process or another one.
    for times in (32, 16, 8, 4, 2, 1):
        number = times * wanted
        if len(peaks) > 2:
            growth = peaks[-1] - peaks[-2]  # doubles from one number to the next
            if peaks[-1] + 2 * growth > room:
                return 2 * number
        fits(trainer, largest(trainer.updates, number))
        peaks.append(peak_memory(trainer.world.device))
    return wanted


def memory_of_process() -> int:
    """Return the bytes that this process may have: its share of the machine or the container."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError, ValueError):  # not Linux
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
        _, _, after_name = text.partition("MemAvailable:")
        limits.append(1024 * int(after_name.split("kB")[0]))
    with contextlib.suppress(OSError, ValueError):  # no container of Linux, or no limit
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8")))
    processes = max(1, environment_number("LOCAL_WORLD_SIZE", 1))
    return min(limits) // processes


def seconds_of_update(run: Run, count: int) -> float:
    """Return the median seconds of the later half of some updates.

    On a GPU, the first ones capture graphs.
    """
    ends: list[float] = []
    with run.trainer.updates.following(count, run.plan.full_epoch(), 0) as updates:
        for step, update in enumerate(updates, 1):
            read_sums = run.trainer.update(update.share, step)
            for observer in run.observers:
                observer.updated(step)
            read_sums()
            ends.append(time.perf_counter())
            is_late = ends[-1] - ends[0] > SECONDS
            enough = step == MOST_UPDATES or (step >= FEWEST_UPDATES and is_late)
            if run.world.start_any([enough])()[0]:
                break
    seconds = [end - start for start, end in pairwise(ends)]
    return statistics.median(seconds[len(seconds) // 2 :])


def seconds_of_text(run: Run, count: int) -> float:
    """Return the mean seconds in which an update is made, its text drawn, but not computed."""
    updates = run.trainer.updates
    with updates.following(count, run.plan.full_epoch(), 0) as following:
        for _ in range(2 * updates.drawing + AHEAD + 1):  # made while the processes started
            next(following)
        start = time.perf_counter()
        for number in range(1, MOST_UPDATES + 1):
            next(following)
            seconds = time.perf_counter() - start
            if run.world.start_any([seconds > SECONDS])()[0]:  # ranks wait for each other's text
                return seconds / number
    return seconds / MOST_UPDATES


def text(drawing: float, update: float) -> Check:
    """Compare the seconds of an update's text with the seconds of the update, waits included."""
    remedy = ""
    if drawing > 0.9 * update:
        remedy = "the device waits for text: give each process more CPU cores"
    figures = {"text_seconds": drawing}
    return Check("text", f"{drawing:.2g} s an update, drawn anew", remedy, figures=figures)


def projection(steps: int, update: float, ranks: int, price: float | None) -> Check:
    """Project a run from the seconds of an update."""
    value = f"{steps:,} steps of {update:.2g} s"
    return machine.projected("run", value, steps * update, ranks, price, update_seconds=update)


def show(checks: Sequence[Check], as_json: bool) -> None:
    """Print the checks as JSON or as a table."""
    if as_json:
        described = [{"verdict": check.verdict, **asdict(check)} for check in checks]
        print(json.dumps(described, indent=2))
        return
    rows = []
    for check in checks:
        verdict = check.verdict
        if check.remedy:
            verdict += f": {check.remedy}"
        rows.append((check.name, check.value, verdict))
    Console(markup=False, emoji=False).print(table(("check", "value", "verdict"), rows))
