"""Speed of `nmt serve` under concurrent load.

Each answer is compared with the answer of `nmt translate`.

    python -m benchmarks.serving CHECKPOINT --input FILE [--clients N ...] [-- FLAGS]

Each client sends a line of FILE, waits for the answer, and sends the next line that no other client
has sent. FLAGS are those of `nmt translate`, such as --beam 1; both commands get them.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from benchmarks import report

NMT = (sys.executable, "-m", "nmt_cli")
HEAD = (
    "clients",
    "requests/s",
    "median (ms)",
    "99th percentile (ms)",
    "without an answer",
    "other than nmt translate",
)


class Answer(NamedTuple):
    """The answer to one line."""

    code: int
    text: str
    seconds: float


def answers(port: int, lines: Sequence[str], clients: int) -> list[Answer]:
    """Send each line to the server on `port`, by several clients with one connection each."""
    thread_data = threading.local()

    def connect() -> None:
        thread_data.connection = HTTPConnection("127.0.0.1", port)

    def ask(line: str) -> Answer:
        began = time.perf_counter()
        thread_data.connection.request("POST", "/translate", json.dumps({"text": line}).encode())
        response = thread_data.connection.getresponse()
        text = json.loads(response.read()).get("translation", "")
        return Answer(response.status, text, time.perf_counter() - began)

    with ThreadPoolExecutor(clients, initializer=connect) as pool:
        return list(pool.map(ask, lines))


def row(port: int, lines: Sequence[str], expected: Sequence[str], clients: int) -> list[str]:
    """Return the cells of the table for a number of clients."""
    began = time.perf_counter()
    translations = answers(port, lines, clients)
    rate = len(translations) / (time.perf_counter() - began)
    latencies = [answer.seconds for answer in translations]
    *_, last = statistics.quantiles(latencies, n=100, method="inclusive")
    times = [f"{1000 * seconds:,.0f}" for seconds in (statistics.median(latencies), last)]
    lost = sum(answer.code != 200 for answer in translations)
    other = sum(
        answer.code == 200 and answer.text != text
        for answer, text in zip(translations, expected, strict=True)
    )
    return [str(clients), f"{rate:.1f}", *times, str(lost), str(other)]


@contextmanager
def served(checkpoint: Path, flags: Sequence[str]) -> Iterator[int]:
    """Yield the port of a server, which is stopped in the end."""
    command = [
        *NMT,
        "serve",
        str(checkpoint),
        *"--port 0 --quiet --no-split-sentences".split(),
        *flags,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if match := re.match(r"listening on http://.*:(\d+);", line):
                    yield int(match[1])
                    break
                print(line, end="", file=sys.stderr)
        finally:
            process.terminate()
    if process.returncode:
        raise SystemExit(f"error: nmt serve ended with {process.returncode}")


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line, with `flags`, the words after `--`."""
    parser = report.parser("serving", __doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--input", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--clients", type=report.positive, nargs="+", default=[1, 8, 32], metavar="N"
    )
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:end])
    options.flags = words[end + 1 :]
    return options


def main() -> None:
    options = arguments(sys.argv[1:])
    command = [
        *NMT,
        "translate",
        str(options.checkpoint),
        "--input",
        str(options.input),
        "--quiet",
        *options.flags,
    ]
    expected = subprocess.run(
        command, stdout=subprocess.PIPE, encoding="utf-8", check=True
    ).stdout.split("\n")[:-1]
    lines = options.input.read_text(encoding="utf-8").split("\n")[: len(expected)]
    with served(options.checkpoint, options.flags) as port:
        answers(port, lines[:32], 4)  # the first requests are slower
        rows = [row(port, lines, expected, clients) for clients in options.clients]
    print(
        report.write(options.out, "serving", "Each line is sent once.", [report.table(HEAD, rows)])
    )


if __name__ == "__main__":
    main()
