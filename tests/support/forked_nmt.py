"""An `nmt` whose processes are forks of one that has imported PyTorch, to start fast.

A fork imports nmt_cli itself, from its own PYTHONPATH. It has the arguments, the environment, the
directory, the streams and the signals of the program that called it. It does not see Python's other
variables: PYTHONIOENCODING. The hashes of strings are the same in all forks: what depends on the
order of a set does not show.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CLIENT = """#!{python}
import contextlib, json, os, signal, socket, sys

connection = socket.socket(socket.AF_UNIX)
connection.connect("{address}")
order = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
socket.send_fds(connection, [len(order).to_bytes(4, "big")], [0, 1, 2])
connection.sendall(order)
answers = connection.makefile()
process = int(answers.readline())


def pass_on(number, frame):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, pass_on)
code = int(answers.readline())
if code < 0:
    with contextlib.suppress(OSError):  # SIGKILL
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
MODULES = "NMT_TEST_MODULES"
"""The environment variable with the file in which a fork lists the modules that it has at its end.
"""


@contextmanager
def forking_nmt(folder: Path) -> Iterator[Path]:
    """Make the program `nmt` in `folder`, which should have a short name.

    It works until the end of the context.
    """
    address = folder / "socket"
    program = folder / "nmt"
    program.write_text(CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
    program.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-P", __file__, str(address)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    yield program
    server.stdin.close()
    server.wait()
    server.stdout.close()


def serve(address: str) -> None:
    """Fork for each connection, until standard input ends."""
    for name in ("torch", "regex", "rich.console", "sentencepiece", "typer"):
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the parents are not waited for
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            attend(connection)
            return
        connection.close()


def attend(connection: socket.socket) -> None:
    """Fork the process, and write its number and its exit code."""
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as orders:
        order = json.loads(orders.read(int.from_bytes(size, "big")))
    process = os.fork()
    if process == 0:
        connection.close()
        run(streams, *order)
        return
    for stream in streams:
        os.close(stream)
    connection.sendall(f"{process}\n".encode())
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    connection.sendall(f"{code}\n".encode())
    os._exit(0)


def run(streams: list[int], arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """Run `nmt ARGUMENTS` in this process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = text_stream(0, "r")
    sys.stdout, sys.stderr = text_stream(1, "w"), text_stream(2, "w", errors="backslashreplace")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv[1:] = arguments
    if MODULES in environment:
        atexit.register(lambda: Path(environment[MODULES]).write_text("\n".join(sys.modules)))
    runpy.run_module("nmt_cli", run_name="__main__", alter_sys=True)


def text_stream(number: int, mode: str, **options: Any) -> Any:
    by_line = mode == "w" and (number == 2 or os.isatty(number))
    return os.fdopen(
        number, mode, buffering=1 if by_line else -1, encoding="utf-8", closefd=False, **options
    )


if __name__ == "__main__":
    serve(sys.argv[1])
