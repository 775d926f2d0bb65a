"""The socket and the connections.

The server itself is tested as a process: tests/integration/test_serve.py.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from nmt_cli.annexes.serving.server import Protocol, Seldom, _listener
from nmt_cli.errors import NmtError

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
Open = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def connected(scenario: Callable[[Open], Awaitable[None]], **options: Any) -> None:
    """Run a scenario with a function that connects to a server with these options of uvicorn."""

    async def run() -> None:
        app = PlainTextResponse("hello")
        config = uvicorn.Config(
            app, http=Protocol, ws="none", lifespan="off", log_config=None, **options
        )
        config.load()
        state = ServerState()
        loop = asyncio.get_running_loop()
        with _listener("127.0.0.1", 0) as listener:
            server = await loop.create_server(lambda: Protocol(config, state, {}), sock=listener)
            await asyncio.wait_for(
                scenario(lambda: asyncio.open_connection(*listener.getsockname())), 60
            )
            server.close()

    asyncio.run(run())


@pytest.mark.parametrize("beginning", [b"", b"GET", GET])
def test_a_connection_whose_header_does_not_arrive_is_closed(beginning: bytes) -> None:
    async def scenario(connect: Open) -> None:
        reader, writer = await connect()
        writer.write(beginning)
        assert await reader.read() == b""
        writer.close()

    connected(scenario, timeout_keep_alive=0.05)


def test_a_kept_connection_that_is_idle_is_closed() -> None:
    async def scenario(connect: Open) -> None:
        reader, writer = await connect()
        writer.write(GET + b"\r\n" + GET)
        assert (await reader.read()).endswith(b"hello")
        writer.close()

    connected(scenario, timeout_keep_alive=0.5)


def test_connections_above_the_maximum_are_closed_and_the_others_answered() -> None:
    async def scenario(connect: Open) -> None:
        first, writer = await connect()
        writer.write(GET)  # unfinished: the server has accepted it before the next one
        more, other = await connect()
        assert await more.read() == b""
        other.close()
        writer.write(b"Connection: close\r\n\r\n")
        assert (await first.read()).endswith(b"hello")
        writer.close()

    connected(scenario, limit_concurrency=2)


def test_connections_that_are_being_refused_are_not_counted() -> None:
    """uvicorn answers 503 to a request while there are as many connections as the limit."""

    async def run() -> None:
        app = PlainTextResponse("hello")
        config = uvicorn.Config(
            app, http=Protocol, ws="none", lifespan="off", log_config=None, limit_concurrency=2
        )
        state = ServerState()
        transports = [
            Mock(get_extra_info=lambda name: None, is_closing=lambda: False) for _ in range(2)
        ]
        first, second = (Protocol(config, state, {}) for _ in transports)
        first.connection_made(transports[0])
        second.connection_made(transports[1])
        transports[1].close.assert_called_once()
        first.data_received(GET + b"\r\n")
        await asyncio.gather(*state.tasks)
        assert transports[0].write.call_args_list[0].args[0].startswith(b"HTTP/1.1 200 ")

    asyncio.run(run())


def test_a_connection_whose_client_does_not_read_is_closed() -> None:
    async def run() -> None:
        config = uvicorn.Config(PlainTextResponse("hello"), http=Protocol, log_config=None)
        config.timeout_graceful_shutdown = 0.01  # type: ignore[assignment]
        closed = asyncio.Event()
        transport = Mock(get_extra_info=lambda name: None, abort=closed.set)
        protocol = Protocol(config, ServerState(), {})
        protocol.connection_made(transport)
        transport.set_write_buffer_limits.assert_called_once_with(0)
        protocol.pause_writing()
        protocol.resume_writing()
        assert protocol.unread.cancelled()
        protocol.pause_writing()
        await asyncio.wait_for(closed.wait(), 60)

    asyncio.run(run())


def test_answers_are_sent_at_once() -> None:
    with _listener("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_one_record_in_ten_seconds() -> None:
    seldom = Seldom()
    record = logging.makeLogRecord({})
    passed = []
    for record.created in (100.0, 100.1, 109.9, 110.0, 119.0, 125.0):
        passed.append(seldom.filter(record))
    assert passed == [True, False, False, True, False, True]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_free_port(host: str) -> None:
    try:
        listener = _listener(host, 0)
    except NmtError:
        if host != "::1":
            raise
        pytest.skip("no IPv6 here")
    with listener, socket.create_connection(listener.getsockname()[:2]) as connection:
        assert connection.getpeername()[:2] == listener.getsockname()[:2]


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b", "192.0.2.1"])
def test_addresses_that_are_not_of_this_machine(host: str) -> None:
    with pytest.raises(NmtError, match=r"cannot listen.*--host"):
        _listener(host, 0)
