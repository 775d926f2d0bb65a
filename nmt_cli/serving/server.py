"""The server of `nmt serve`: its socket, its signals, and the translator that the queue feeds."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch
import uvicorn
from starlette.types import ASGIApp

from nmt_cli.data.parallel import WorkerDied, Workers
from nmt_cli.decoding.outputs import Translation
from nmt_cli.decoding.translator import LARGEST_BATCH, Translator
from nmt_cli.errors import NmtError
from nmt_cli.serving.app import application
from nmt_cli.serving.limits import Limits


def serve(
    translator: Translator,
    workers: Workers | None,
    limits: Limits,
    address: tuple[str, int],
    about: Mapping[str, Any],
    say: Callable[[str], None],
    log: Callable[[str], None],
) -> None:
    """Answer requests until SIGINT or SIGTERM; then return when those that have come are answered.

    A second signal ends the process at once.

    Args:
        workers: processes whose state is `translator`; each translates a batch. None is one thread of this process, or
            as many as the translator's engine has.
        address: host and port; 0 is a free port.
        about, log: as for `application`.
        say: called with the address when requests are accepted.

    Raises:
        NmtError: the address cannot be listened on, or a worker process died.
    """
    work = translator.translate_window if workers is None else partial(_translated_by, workers)
    work([""])  # starts the processes: before there are threads and sockets, which they would share

    @contextmanager
    def stopped_by_deaths() -> Iterator[None]:
        try:
            yield
        except WorkerDied as error:
            server.stop(error)
            raise

    @stopped_by_deaths()
    def translate(texts: list[str]) -> list[Translation]:
        return work(texts)

    @stopped_by_deaths()
    def check() -> None:
        if workers:
            workers.check()

    parallel = workers.processes if workers else translator.engine.parallel or 1
    largest = max(1, LARGEST_BATCH[translator.engine.device.type] // translator.search.beam)
    app = application(translate, limits, parallel=parallel, largest=largest, check=check, about=about, log=log)
    server = _Server(app, limits.timeout)
    with _listener(*address) as listener:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, server.handle_exit)
        say(f"listening on {_url(listener)}; Ctrl-C stops")
        server.run([listener])
    if server.error:
        raise server.error


class _Server(uvicorn.Server):
    """uvicorn, stopped by a signal or by an error."""

    def __init__(self, app: ASGIApp, timeout: float) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(timeout) + 1,  # a client that does not read its answer
        )
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not a warning for each wrong request
        super().__init__(config)
        self.error: NmtError | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; at the second signal, end the process. Called for SIGINT and SIGTERM."""
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.should_exit = True

    def stop(self, error: NmtError) -> None:
        """Stop because of `error`."""
        self.error = error
        self.should_exit = True


def _translated_by(workers: Workers, texts: list[str]) -> list[Translation]:
    ((_, translations),) = workers.map(_translate_in_worker, [texts])
    return translations


def _translate_in_worker(translator: Translator, texts: list[str]) -> list[Translation]:
    torch.set_num_threads(1)
    return translator.translate_window(texts)


def _listener(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise NmtError(f"--host {host}: there is no such address") from error
    try:
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise NmtError(
            f"cannot listen on {host}, port {port}: {reason}; choose another with --host or --port"
        ) from error


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
