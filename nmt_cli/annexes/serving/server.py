"""The server of `nmt serve`: its socket, its signals, and the translator that the queue feeds."""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import signal
import socket
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from nmt_cli.annexes.serving import metrics
from nmt_cli.annexes.serving.app import application
from nmt_cli.annexes.serving.limits import Limits
from nmt_cli.annexes.serving.queue import TranslationQueue
from nmt_cli.data.parallel import WorkerDied, Workers
from nmt_cli.decoding.outputs import Translation
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import NmtError
from nmt_cli.streams import say

CHARACTERS_PER_TOKEN = 4  # about as many as subwords have


def serve(
    translator: Translator,
    workers: Workers | None,
    limits: Limits,
    address: tuple[str, int],
    about: Mapping[str, Any],
    access_log: bool,
) -> None:
    """Answer requests until SIGINT or SIGTERM. Return when all that have come are answered.

    Args:
        workers: processes whose state is `translator`. Each translates a batch. None is one thread
            of this process, or as many as the translator's engine has.
        address: host and port. 0 is a free port.
        about: as for `application`.
        access_log: write a line about each request to standard error.

    Raises:
        NmtError: the address cannot be listened on, or a worker process died.
    """
    work: Callable[[list[str]], list[Translation]] = translator.translate_texts
    check = workers.check if workers else lambda: None
    parallel = translator.engine.parallel
    if workers is not None:
        work = partial(_translated_by, workers)
        parallel = workers.processes
    work([""])  # starts the processes before there are threads and sockets, which they would share

    def stop(error: WorkerDied) -> None:
        server.error = error
        server.should_exit = True

    hypotheses = translator.engine.sizes.hypotheses
    queue = TranslationQueue(
        work,
        parallel=parallel,
        largest=max(1, hypotheses // translator.search.beam),
        characters=CHARACTERS_PER_TOKEN * translator.batch_tokens,
    )
    app = application(queue, limits, chain=translator.chain, about=about, check=check, died=stop)
    server = _Server(app, limits, access_log)
    with _listener(*address) as listener:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, server.handle_exit)
        host, port = listener.getsockname()[:2]
        if ":" in host:  # IPv6
            host = f"[{host}]"
        say(f"listening on http://{host}:{port}; Ctrl-C stops")
        server.run([listener])
    if server.error:
        raise server.error


class Protocol(H11Protocol):
    """uvicorn's protocol with bounds of connections, and of the time of headers and answers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
        if len(self.connections) >= (self.limit_concurrency or math.inf):
            self.connections.discard(self)  # uvicorn would refuse requests of the others
            self.transport.close()
        # `pause_writing` is called as soon as the client does not read.
        transport.set_write_buffer_limits(0)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread = self.loop.call_later(
            self.config.timeout_graceful_shutdown or math.inf, self.transport.abort
        )

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread.cancel()

    def data_received(self, data: bytes) -> None:
        # uvicorn ends the time at the first byte, so a header could take for ever.
        self.conn.receive_data(data)
        self.handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._unset_keepalive_if_required()


class Seldom(logging.Filter):
    """One record every ten seconds.

    asyncio writes thousands at a time if there are no file descriptors.
    """

    last = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        if record.created < self.last + 10:
            return False
        self.last = record.created
        return True


class _Server(uvicorn.Server):
    """uvicorn, which returns after a signal. It does not raise the signal again.

    Attributes:
        error: what stopped it.
    """

    def __init__(self, app: ASGIApp, limits: Limits, access_log: bool) -> None:
        logging.basicConfig(format="%(asctime)s %(message)s")  # to standard error
        # Not a warning for each wrong request.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        logging.getLogger("asyncio").addFilter(Seldom())
        if access_log:
            metrics.access_log.setLevel(logging.INFO)
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=min(limits.max_connections, descriptors // 2) + 1,
            # For a client that does not read its answer.
            timeout_graceful_shutdown=math.ceil(2 * limits.timeout) + 1,
        )
        super().__init__(config)
        self.error: NmtError | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop, or end the process at the second signal. Called for SIGINT and SIGTERM."""
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.should_exit = True


def _translated_by(workers: Workers, texts: list[str]) -> list[Translation]:
    ((_, translations),) = workers.map(Translator.translate_texts, [texts])
    return translations


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
        # Its connections have the option, too. Without it, a kept connection waits 40 ms for each
        # answer.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, UnicodeError) as error:  # UnicodeError: a part of the name is too long
        raise NmtError(
            f"cannot listen: {error}; choose another address with --host or --port"
        ) from error
