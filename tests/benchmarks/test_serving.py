"""The clients of the benchmark see what is missing and what is not theirs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re

from benchmarks.serving import HEAD, Load, measure

LINES = [f"line {n}" for n in range(30)]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer in capitals, but line 3 by another text, and line 4 not at all."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            length = re.search(rb"Content-Length: (\d+)", await reader.readuntil(b"\r\n\r\n"))
            assert length is not None
            text = json.loads(await reader.readexactly(int(length[1])))["text"]
            content = {"translation": "mixed up" if text == "line 3" else text.upper(), "score": -1.0}
            code, body = (429, b"{}") if text == "line 4" else (200, json.dumps(content).encode())
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (code, len(body)) + body)
    writer.close()


async def loaded() -> Load:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        return await measure(server.sockets[0].getsockname()[1], LINES, 3)


def test_lost_and_mixed_up_answers_are_counted() -> None:
    load = asyncio.run(loaded())
    assert len(load.latencies) == len(LINES)
    row = dict(zip(HEAD, load.row([line.upper() for line in LINES]), strict=True))
    assert (row["clients"], row["without an answer"], row["other than nmt translate"]) == ("3", "1", "1")
