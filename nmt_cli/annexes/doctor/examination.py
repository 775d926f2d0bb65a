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
from nmt_cli.training.messages import parameters_of
from nmt_cli.training.reporter import duration, table
from nmt_cli.training.run import Run
from nmt_cli.training.settings import RunOptions
from nmt_cli.training.start import configuration, prepare_torch, run_of
from nmt_cli.training.trainer import Trainer

GRADIENTS = 25_000_000  # numbers that the ranks exchange if there is no DATA
# Updates that are timed, and seconds after which no more are made.
FEWEST, MOST, SECONDS = (4, 60, 15.0)


def examine(
    options: RunOptions, flags: Mapping[str, Any], price: float | None, as_json: bool
) -> None:
    """Print the checks. Raise a TrainingError if the run would stop, and for wrong settings what
    `nmt train` raises.
    """
    with main_rank_reports():
        out = (options.out or Path()).absolute()
        place = next(path for path in (out, *out.parents) if path.exists())
        if not place.is_dir():
            raise UsageError(f"--out {options.out}: {place} is not a directory")
        config = configuration(options, flags)
    with join_world(config.training.device, config.training.timeout_minutes) as world:
        prepare_torch(config.training, world.device)
        (say if world.is_main else str)("measuring ...")
        found = measured(options, config, flags, place, world, price)
    if not world.is_main:
        return
    if options.data and not any(check.stops for check in found):
        found.append(resume(options, config, place, world.device))
    show(found, as_json)
    if problems := [check.name for check in found if check.stops]:
        raise TrainingError(f"this run would stop: {', '.join(problems)}")


def measured(
    options: RunOptions,
    config: RunConfig,
    flags: Mapping[str, Any],
    place: Path,
    world: World,
    price: float | None,
) -> list[Check]:
    """Return the checks that all ranks make together."""
    if not options.data:
        found = [
            machine.devices(
                world, fast(world.device).precision(torch.nn.Module(), deterministic=False)
            )
        ]
        return [*found, *machine.exchange(world, GRADIENTS, None), *machine.directory(world, place)]
    run = run_of(options, config, flags, world, place, quiet=True)
    run.check_agreement()
    found = [machine.devices(world, run.trainer.objective.precision), memory(run)]
    update = (
        None if found[-1].stops else seconds_of_update(run, int(found[-1].figures["micro_batches"]))
    )
    count, learning = parameters_of(run.model)
    found += machine.exchange(world, learning, update)
    size, number = (
        checkpoint_bytes(config, count, learning),
        checkpoints_on_disk(run.config, run.length.steps),
    )
    found += machine.directory(world, place, size, number)
    return [*found, projection(run.length.steps, update, world.size, price)] if update else found


def memory(run: Run) -> Check:
    """Run the largest micro-batches that fit; the figures have their number in an update."""
    world, wanted, gpu = (
        run.world,
        run.trainer.updates.micro_batches,
        run.world.device.type == "cuda",
    )
    room = torch.cuda.mem_get_info(world.device)[1] if gpu else memory_of_process()
    count = run.choose_micro_batches()
    if not gpu and not run.config.model_parallel:
        count = max(world.gather(fitting_on_cpu(run.trainer, room)))
    stops = count > wanted and not gpu  # on a GPU, training finds the number
    peak, remedy = (
        peak_memory(world.device),
        f"too large micro-batches: give --micro-batches {count}" if stops else "",
    )
    value = f"{peak / 1e9:.2f} of {room / 1e9:.3g} GB; micro-batches of an update: {count}"
    return Check(
        "memory", value, remedy, stops, {"micro_batches": count, "peak_bytes": peak, "bytes": room}
    )


def fitting_on_cpu(trainer: Trainer, room: int) -> int:
    """Return the least number of micro-batches, at least that of the settings, that fit into `room`
    bytes.
    """
    # Small ones first: where memory ends, the system would end this process or another one.
    wanted, peaks = trainer.updates.micro_batches, [0]
    for number in (wanted << power for power in (5, 4, 3, 2, 1, 0)):
        if (
            len(peaks) > 2 and 3 * peaks[-1] - 2 * peaks[-2] > room
        ):  # the growth of the peak doubles, too
            return 2 * number
        fits(trainer, largest(trainer.updates, number))
        peaks.append(peak_memory(trainer.world.device))
    return wanted


def memory_of_process() -> int:
    """Return the bytes that this process may have: of the machine or its container, shared with its
    other ranks.
    """
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError, ValueError):  # not Linux
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
        found.append(1024 * int(text.partition("MemAvailable:")[2].split("kB")[0]))
    with contextlib.suppress(OSError, ValueError):  # no container of Linux, or no limit
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8")))
    return min(found) // max(1, environment_number("LOCAL_WORLD_SIZE", 1))


def seconds_of_update(run: Run, count: int) -> float:
    """Return the median seconds of the later half of some updates: the first ones capture graphs of
    a GPU.
    """
    ends: list[float] = []
    with run.trainer.updates.following(count, run.plan.full_epoch(), 0) as updates:
        for step, update in enumerate(updates, 1):
            read = run.trainer.update(update.share, step)
            for observer in run.observers:
                observer.updated(step)
            read()
            ends.append(time.perf_counter())
            enough = step == MOST or (step >= FEWEST and ends[-1] - ends[0] > SECONDS)
            if run.world.start_any([enough])()[0]:
                break
    seconds = [end - begin for begin, end in pairwise(ends)]
    return statistics.median(seconds[len(seconds) // 2 :])


def projection(steps: int, update: float, ranks: int, price: float | None) -> Check:
    """Project a run from the seconds of an update."""
    hours = steps * update / 3600
    figures = {"update_seconds": update, "hours": hours, "device_hours": ranks * hours}
    value = f"{steps:,} steps of {update:.2g} s: {duration(3600 * hours)}, {ranks * hours:.3g} device-hours"
    if price is not None:
        figures["cost"] = price * ranks * hours
        value += f", cost {figures['cost']:,.2f}"
    return Check("run", value, figures=figures)


def show(found: Sequence[Check], as_json: bool) -> None:
    if as_json:
        print(
            json.dumps([{"verdict": check.verdict, **asdict(check)} for check in found], indent=2)
        )
        return
    rows = []
    for check in found:
        verdict = f"{check.verdict}: {check.remedy}" if check.remedy else check.verdict
        rows.append((check.name, check.value, verdict))
    Console(markup=False, emoji=False).print(table(("check", "value", "verdict"), rows))
