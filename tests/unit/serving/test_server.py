"""The socket. The server itself is tested as a process: tests/integration/test_serve.py."""

from __future__ import annotations

import socket

import pytest

from nmt_cli.errors import NmtError
from nmt_cli.serving.server import _listener, _url


def test_a_free_port() -> None:
    with _listener("127.0.0.1", 0) as listener:
        assert _url(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
        with socket.create_connection(listener.getsockname()):
            pass


def test_an_address_of_ipv6() -> None:
    try:
        listener = _listener("::1", 0)
    except NmtError:
        pytest.skip("no IPv6 here")
    with listener:
        assert _url(listener) == f"http://[::1]:{listener.getsockname()[1]}"


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 70, "192.0.2.1"])
def test_addresses_that_are_not_of_this_machine(host: str) -> None:
    with pytest.raises(NmtError, match=rf"{host}.*: \w"):
        _listener(host, 0)


def test_a_port_in_use() -> None:
    with _listener("127.0.0.1", 0) as first, pytest.raises(NmtError, match=r"in use.* --port"):
        _listener("127.0.0.1", first.getsockname()[1])
