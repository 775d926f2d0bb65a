"""Speed of `nmt serve` under concurrent load; each answer is compared with that of `nmt translate`.

    python -m benchmarks.serving CHECKPOINT --input FILE [--clients N ...] [-- FLAGS]

Each client sends a line of FILE, waits for the answer, and sends the next line that no other client has sent. FLAGS are
those of `nmt translate`, such as --beam 1; both commands get them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import report

NMT = (sys.executable, "-m", "nmt_cli")


@dataclass
class Load:
    """What one number of clients got.

    Args:
        answers: the code and the translation, by the number of the line.
        latencies: in seconds.
    """

    clients: int
    seconds: float = 0.0
    answers: dict[int, tuple[int, str]] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)

    def row(self, expected: Sequence[str]) -> list[str]:
        """Return the cells of the table."""
        *_, last = statistics.quantiles(self.latencies, n=100, method="inclusive")
        lost = sum(self.answers.get(n, (0, ""))[0] != 200 for n in range(len(expected)))
        other = sum(code == 200 and text != expected[n] for n, (code, text) in self.answers.items())
        times = (f"{1000 * seconds:,.0f}" for seconds in (statistics.median(self.latencies), last))
        return [f"{self.clients}", f"{len(expected) / self.seconds:.1f}", *times, f"{lost}", f"{other}"]


HEAD = ("clients", "requests/s", "median (ms)", "99th percentile (ms)", "without an answer", "other than nmt translate")


async def measure(port: int, lines: Sequence[str], clients: int) -> Load:
    """Send each line to the server on `port` once, by so many clients at a time."""
    load = Load(clients)
    rest = iter(enumerate(lines))
    start = time.perf_counter()
    await asyncio.gather(*(_client(port, rest, load) for _ in range(clients)))
    load.seconds = time.perf_counter() - start
    return load


async def _client(port: int, rest: Iterator[tuple[int, str]], load: Load) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number, line in rest:
        body = json.dumps({"text": line}).encode()
        start = time.perf_counter()
        writer.write(b"POST /translate HTTP/1.1\r\nHost: benchmark\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None
        answer = json.loads(await reader.readexactly(int(length[1])))
        load.latencies.append(time.perf_counter() - start)
        load.answers[number] = int(head.split()[1]), answer.get("translation", "")
    writer.close()


@contextmanager
def served(checkpoint: Path, flags: Sequence[str]) -> Iterator[int]:
    """Yield the port of a server, which is stopped in the end."""
    command = [*NMT, "serve", str(checkpoint), "--port", "0", "--quiet", "--no-split-sentences", *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if found := re.match(r"listening on http://.*:(\d+);", line):
                    yield int(found[1])
                    break
                print(line, end="", file=sys.stderr)
        finally:
            process.terminate()
    if process.returncode:
        raise SystemExit(f"error: nmt serve ended with {process.returncode}")


def translated(checkpoint: Path, flags: Sequence[str], path: Path) -> list[str]:
    """Return what `nmt translate` makes of the lines of a file."""
    command = [*NMT, "translate", str(checkpoint), "--input", str(path), "--quiet", *flags]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout.split("\n")[:-1]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--input", type=Path, required=True, metavar="FILE")
    parser.add_argument("--clients", type=report.positive, nargs="+", default=[1, 8, 32], metavar="N")
    parser.add_argument("flags", nargs="*", default=[])
    options = parser.parse_args()
    expected = translated(options.checkpoint, options.flags, options.input)
    lines = options.input.read_text(encoding="utf-8").split("\n")[: len(expected)]
    with served(options.checkpoint, options.flags) as port:
        asyncio.run(measure(port, lines[:32], 4))  # the first requests are slower
        loads = [asyncio.run(measure(port, lines, clients)) for clients in options.clients]
    print(f"{report.machine()}; {report.own_version()['nmt']}\n")
    print(report.table(HEAD, [load.row(expected) for load in loads]))


if __name__ == "__main__":
    main()
