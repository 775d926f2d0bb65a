from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from pathlib import Path

import pytest

from benchmarks.real_text import CALLS, calls
from benchmarks.serving import answers, arguments


@pytest.mark.parametrize("flags", [[], ["--dtype", "int8"]])
def test_flags_for_both_commands_come_after_two_dashes(flags: list[str]) -> None:
    options = arguments(
        ["run", "--input", "lines", "--clients", "1", "8", *(["--", *flags] if flags else [])]
    )
    assert (options.checkpoint, options.input, options.clients) == (
        Path("run"),
        Path("lines"),
        [1, 8],
    )
    assert options.flags == flags


@pytest.mark.parametrize(("keep_alive", "connections"), [(True, 3), (False, 12)])
def test_each_line_gets_its_answer(keep_alive: bool, connections: int) -> None:
    opened = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError):  # the client leaves
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.split(b"Content-Length: ")[1].split()[0])
                text = json.loads(await reader.readexactly(length))["text"]
                body = json.dumps({"translation": text.upper()}).encode()
                writer.write(b"HTTP/1.1 201 X\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        replies = await answers(port, [f"line {n}" for n in range(12)], 3, keep_alive)
        assert [reply.text for reply in replies] == [f"LINE {n}" for n in range(12)]
        assert {reply.code for reply in replies} == {201}
        server.close()

    asyncio.run(run())
    assert len(opened) == connections


def test_calls_of_few_sentences_are_of_the_whole_text() -> None:
    lines = [str(number) for number in range(1000)]
    assert calls(lines, 1000) == [lines]
    assert list(itertools.chain(*calls(lines, 100))) == lines
    single = calls(lines, 1)
    assert len(single) == CALLS
    assert [len(call) for call in single] == [1] * CALLS
    assert single[-1] > ["9"]
