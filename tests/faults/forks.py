"""A process that has imported everything, and forks a child for each `nmt` command.

It reads one JSON object per line from standard input:

    arguments    of the command
    folder       an empty directory for `out`, `err`, `pid`, and the exit code `code`
    environment  changes to it
    watched      a directory; the number of file changes in it is written to `changes`
    kill_at      SIGKILL before change number `kill_at` (0: never)
    full_at      the disk is full from change number `full_at` on (0: never)
    signals      signals by numbers of changes; the process sends them to itself
    poison       the name of a function of this file, called before the command
    limits       seconds of processor time, and bytes of address space
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.symlink", "os.link")


class Watch:
    """Counts the file changes in a directory, and causes a fault at one of them."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.watched = str(order.get("watched", "/nowhere"))
        self.changes = 0
        self.signals = {int(place): number for place, number in order.get("signals", {}).items()}

    def __call__(self, event: str, details: tuple[Any, ...]) -> None:
        if event == "open":
            changes = isinstance(details[2], int) and details[2] & (
                os.O_WRONLY | os.O_RDWR | os.O_CREAT
            )
        else:
            changes = event in CHANGES
        if not changes or not any(str(detail).startswith(self.watched) for detail in details):
            return
        self.changes += 1
        if self.changes == self.order.get("kill_at", 0):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.changes in self.signals:
            os.kill(os.getpid(), self.signals[self.changes])
        if (
            event in ("open", "os.mkdir", "os.link")
            and 0 < self.order.get("full_at", 0) <= self.changes
        ):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(details[0]))


def at_backward(number: int, act: Callable[[], None]) -> None:
    """Call `act` in place of backward pass number `number`."""
    import torch

    original: Any = torch.Tensor.backward
    calls = iter(range(1, 1 << 60))

    def backward(self: Any, *arguments: Any, **values: Any) -> None:
        if next(calls) == number:
            act()
        else:
            original(self, *arguments, **values)

    torch.Tensor.backward = backward  # type: ignore[assignment]


def asked_to_stop() -> None:
    """Send the signal STOP_BY in the middle of step STOP_AT."""
    from nmt_cli.training.trainer import Trainer

    original: Any = Trainer.accumulate

    def accumulate(self: Trainer, share: Any, step: int) -> Any:
        if step == int(os.environ["STOP_AT"]):
            os.kill(os.getpid(), int(os.environ["STOP_BY"]))
        return original(self, share, step)

    Trainer.accumulate = accumulate  # type: ignore[method-assign]


def with_nohup_and_without_reader() -> None:
    """Ignore SIGHUP, as nohup does, and write standard error into a pipe without a reader."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 2)


def no_gpu_memory() -> None:
    """The GPU is out of memory in the fifth step."""

    def act() -> None:
        import torch

        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    at_backward(18, act)


def dies() -> None:
    """Kill the process in the middle of a step."""
    at_backward(6, lambda: os.kill(os.getpid(), signal.SIGKILL))


def dies_once() -> None:
    """Kill rank 1 in the middle of a step, and stop rank 0 in its report to torchrun.

    A restart by torchrun has no faults.
    """
    if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
        return
    if os.environ["RANK"] == "1":
        dies()
    else:
        is_stopped_reporting()


def is_stopped_reporting() -> None:
    """Send the process SIGTERM when its report to torchrun is open and still empty."""
    from torch.distributed.elastic.multiprocessing.errors import error_handler

    original = error_handler.json.dump

    def dump(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        original(*arguments)

    error_handler.json.dump = dump


def dies_translating() -> None:
    """Kill the process when it begins a window at line STOP_AT or later."""
    from nmt_cli.decoding.translator import Translator

    original = Translator.translate_window

    def translate_window(self: Translator, *arguments: Any, first: int = 1, **values: Any) -> Any:
        if first >= int(os.environ["STOP_AT"]):
            print(f"killed at line {first}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *arguments, first=first, **values)

    Translator.translate_window = translate_window  # type: ignore[method-assign]


def dies_translating_once() -> None:
    """Kill rank 1 at its second window of four lines, but not after a restart by torchrun."""
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.environ["STOP_AT"] = "5"
        dies_translating()


def sees_no_checkpoint() -> None:
    """Hide the checkpoints from this process, as with a directory that machines do not share."""
    from nmt_cli.training.run_directory import RunDirectory

    RunDirectory.newest = lambda self, note: None  # type: ignore[method-assign]


def dies_in_a_save() -> None:
    """Kill the process when divided parameters are brought together for the second checkpoint."""
    import torch.distributed as dist

    original, calls = dist.gather, iter(range(1, 1 << 60))

    def gather(*arguments: Any) -> None:
        if next(calls) == 18:  # there are 4 parameters with 2 moments each
            os.kill(os.getpid(), signal.SIGKILL)
        original(*arguments)

    dist.gather = gather


def hangs() -> None:
    """Stop the process in the middle of a step."""
    at_backward(6, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def raises_an_error() -> None:
    """Raise an error in this process only."""

    def act() -> None:
        from nmt_cli.errors import DataError

        raise DataError("shard.ids: damaged")

    at_backward(6, act)


def run(order: dict[str, Any], folder: Path) -> None:
    """Run the command in the child, and exit with its code."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for kind, limit in zip(
        (resource.RLIMIT_CPU, resource.RLIMIT_AS), order.get("limits", ()), strict=False
    ):
        resource.setrlimit(kind, (limit, limit))
    os.chdir(folder)
    os.environ.update(order.get("environment", {}))
    watch = Watch(order)
    if "watched" in order:
        sys.addaudithook(watch)
    if "poison" in order:
        globals()[order["poison"]]()
    from nmt_cli.cli import main

    code = 0
    try:
        main(order["arguments"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        (folder / "changes").write_text(str(watch.changes))
        (folder / "peak").write_text(str(peak_memory()))
    os._exit(code)


def peak_memory() -> int:
    """Peak memory of this process in kB."""
    status = Path("/proc/self/status")
    match = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(match[1]) if match else 0


def attend(order: dict[str, Any]) -> None:
    """Fork the child, and write its process id and its exit code."""
    folder = Path(order["folder"])
    os.setsid()
    child = os.fork()
    if child == 0:
        try:
            run(order, folder)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(70)
    (folder / ".pid").write_text(str(child))
    (folder / ".pid").rename(folder / "pid")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    (folder / ".code").write_text(str(status))
    (folder / ".code").rename(folder / "code")
    os._exit(0)


def serve() -> None:
    """Fork for each order, until standard input ends."""
    import nmt_cli.commands.train
    import nmt_cli.commands.translate  # noqa: F401
    from nmt_cli import registry

    registry.discover()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the parents are not waited for
    print("ready", flush=True)
    while line := sys.stdin.readline():
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            attend(json.loads(line))


if __name__ == "__main__":
    serve()
