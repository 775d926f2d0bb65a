"""The socket. The server itself is tested as a process: tests/integration/test_serve.py."""

from __future__ import annotations

import socket

import pytest

from nmt_cli.errors import NmtError
from nmt_cli.serving.server import _listener


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_free_port(host: str) -> None:
    try:
        listener = _listener(host, 0)
    except NmtError:
        if host != "::1":
            raise
        pytest.skip("no IPv6 here")
    with listener, socket.create_connection(listener.getsockname()[:2]):
        pass


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b", "192.0.2.1"])
def test_addresses_that_are_not_of_this_machine(host: str) -> None:
    with pytest.raises(NmtError, match=r"cannot listen.*--host"):
        _listener(host, 0)
