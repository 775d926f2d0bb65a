"""Speed of `nmt serve` under concurrent load, beside a server with CTranslate2.

    python -m benchmarks.serving CHECKPOINT --input FILE [--clients N ...] [-- FLAGS]

Each client sends a line of FILE, waits for the answer, and sends the next line that no other client
has sent. FLAGS are those of `nmt translate`, such as --dtype int8 or --beam 1, for all systems.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import math
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ctranslate2
import uvicorn

from benchmarks import report
from benchmarks.commands import run, running_seconds
from nmt_cli.checkpoint import TASK, load_task
from nmt_cli.errors import counted
from nmt_cli.files.text import read_lines

NMT = (sys.executable, "-m", "nmt_cli")
PEER = (sys.executable, "-m", "benchmarks.peers.server")
SYSTEMS = ("nmt", "engine", "peer")
CONNECTIONS = ("kept", "new")
REQUESTS = 100
"""Of a client in a round, if there are so many lines."""
HEAD = (
    "",
    "requests/s",
    "median (ms)",
    "95th percentile",
    "99th percentile",
    "processor ms a request",
    "without an answer",
    "other than nmt translate",
)
METHOD = """
{lines:,} lines, of which {requests} a client are sent in a round, if there are so many. All servers
run all the time and take turns. Figures are medians over {rounds} rounds. Processor time is of all
processes of a server. The server with CTranslate2 is benchmarks/peers/server.py: it has the same
weights, and each of its threads translates what waits as a batch. Flags of all: {flags}.
"""


class Answer(NamedTuple):
    """The answer to one line."""

    code: int
    text: str
    seconds: float


class Server(NamedTuple):
    """A server that runs."""

    name: str
    process: int
    port: int
    expected: Sequence[str] | None  # the answer to each line, if they are known


async def answers(port: int, lines: Sequence[str], clients: int, keep_alive: bool) -> list[Answer]:
    """Send each line to the server on `port`.

    Args:
        keep_alive: whether a client has one connection, and not one for each line.
    """
    replies: dict[int, Answer] = {}
    waiting = iter(enumerate(lines))

    async def client() -> None:
        streams = None
        for number, line in waiting:
            began = time.perf_counter()
            streams = streams or await asyncio.open_connection("127.0.0.1", port)
            code, content = await exchange(*streams, line)
            seconds = time.perf_counter() - began
            replies[number] = Answer(code, content.get("translation", ""), seconds)
            if not keep_alive:
                streams[1].close()
                streams = None
        if streams:
            streams[1].close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return [replies[number] for number in range(len(lines))]


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str
) -> tuple[int, dict[str, Any]]:
    """Return the code and the content of the answer to a line."""
    body = json.dumps({"text": line}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = re.search(r"content-length: (\d+)", head)
    assert length
    return int(head.split()[1]), json.loads(await reader.readexactly(int(length[1])))


def figures(
    server: Server, lines: Sequence[str], numbers: Sequence[int], clients: int, keep_alive: bool
) -> list[float]:
    """Send the lines with these numbers. Return a row of the table, without its name."""
    began, before = time.perf_counter(), running_seconds(server.process)
    replies = asyncio.run(answers(server.port, [lines[i] for i in numbers], clients, keep_alive))
    seconds = time.perf_counter() - began
    processor = running_seconds(server.process) - before
    latencies = [1000 * reply.seconds for reply in replies]
    percentiles = statistics.quantiles(latencies, n=100, method="inclusive")
    lost = sum(reply.code != 200 for reply in replies)
    other = math.nan
    if server.expected is not None:
        other = sum(
            reply.code == 200 and reply.text != server.expected[number]
            for number, reply in zip(numbers, replies, strict=True)
        )
    return [
        len(replies) / seconds,
        *(percentiles[share - 1] for share in (50, 95, 99)),
        1000 * processor / len(replies),
        lost,
        other,
    ]


@contextlib.contextmanager
def served(name: str, command: Sequence[str], expected: Sequence[str] | None) -> Iterator[Server]:
    """Yield a server that has started. It is stopped in the end."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if match := re.search(r"http://[\w.]+:(\d+)", line):
                    yield Server(name, process.pid, int(match[1]), expected)
                    break
                print(line, end="", file=sys.stderr)
        finally:
            process.terminate()
    if process.returncode not in (0, -signal.SIGTERM):
        raise SystemExit(f"error: {name} ended with {process.returncode}")


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line, with `flags`, the words after `--`."""
    parser = report.parser("serving", __doc__, rounds=3)
    add = parser.add_argument
    add("checkpoint", type=Path)
    add("--input", type=Path, required=True, metavar="FILE")
    add("--clients", type=report.positive, nargs="+", default=[1, 8, 64], metavar="N")
    add("--connections", choices=CONNECTIONS, nargs="+", default=CONNECTIONS)
    add(
        "--systems",
        choices=SYSTEMS,
        nargs="+",
        default=SYSTEMS,
        help="nmt serve, nmt serve --engine ctranslate2, and the server with CTranslate2",
    )
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:end])
    options.flags = words[end + 1 :]
    return options


def commands(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, list[str], Any]]:
    """Yield the name of each server, its command, and the answers that it should give."""
    export, pieces = folder / "export", folder / "pieces"
    if options.systems != ["nmt"]:
        to = f"export {options.checkpoint} --to ctranslate2 --out {export}".split()
        run([*NMT, *to])
    for system in options.systems:
        if system == "peer":
            task: Any = load_task(options.checkpoint / TASK)
            pieces.write_bytes(task.vocabularies()[0].serialise())
            yield "CTranslate2 server", [*PEER, str(export), str(pieces), *options.flags], None
            continue
        model = [str(options.checkpoint)]
        if system == "engine":
            model = [str(export), "--engine", "ctranslate2"]
        output = folder / system
        files = f"--input {options.input} --output {output}".split()
        run([*NMT, "translate", *model, *files, "--quiet", *options.flags])
        command = "serve --port 0 --quiet --no-split-sentences".split()
        name = " ".join(["nmt serve", *model[1:]])
        yield name, [*NMT, *command, *model, *options.flags], list(read_lines(output))


def rows(
    servers: Sequence[Server], lines: Sequence[str], options: argparse.Namespace
) -> Iterator[list[str]]:
    """Measure the servers in turn. Yield the rows of the table."""
    for clients, connections in itertools.product(options.clients, options.connections):
        count = min(len(lines), REQUESTS * clients)
        rounds: dict[str, list[list[float]]] = {server.name: [] for server in servers}
        for number in range(options.rounds):
            numbers = [(number * count + place) % len(lines) for place in range(count)]
            for server in servers:
                row = figures(server, lines, numbers, clients, connections == "kept")
                rounds[server.name].append(row)
        for name, of_server in rounds.items():
            medians = [statistics.median(column) for column in zip(*of_server, strict=True)]
            shown = ["" if math.isnan(value) else report.digits(value) for value in medians]
            yield [f"{name}, {counted(clients, 'client')}, {connections} connections", *shown]


def main() -> None:
    options = arguments(sys.argv[1:])
    lines = list(read_lines(options.input))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(served(*command)) for command in commands(options, Path(folder))
        ]
        for server in servers:
            asyncio.run(answers(server.port, lines[:64], 4, True))  # the first ones are slower
        table = report.table(HEAD, rows(servers, lines, options))
    method = METHOD.format(
        lines=len(lines),
        requests=REQUESTS,
        rounds=options.rounds,
        flags=" ".join(options.flags) or "none",
    )
    versions = [f"ctranslate2 {ctranslate2.__version__}", f"uvicorn {uvicorn.__version__}"]
    report.publish(options.out, "serving", options.rounds, method, [table], versions)


if __name__ == "__main__":
    main()
