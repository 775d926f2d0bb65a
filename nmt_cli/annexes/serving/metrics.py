"""The metrics of `GET /metrics`, in the text format of Prometheus."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from urllib.parse import quote

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt_cli.errors import counted

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

# Routes that machines ask every few seconds. They are in the log only if the answer is an error.
ROUTINE = ("/health", "/metrics")

# A proxy may have taken the other length, and the rest for another request: RFC 9112, 6.1.
AMBIGUOUS = JSONResponse(
    {"error": "Content-Length with Transfer-Encoding"}, 400, {"Connection": "close"}
)

access_log = logging.getLogger("nmt.access")


class Metrics:
    """The metrics of one server.

    Args:
        queue_length: returns the number of waiting sentences.
    """

    def __init__(self, queue_length: Callable[[], int]) -> None:
        registry = CollectorRegistry()
        self.requests = Counter(
            "nmt_requests", "Requests that were answered.", ["route", "code"], registry=registry
        )
        self.seconds = Histogram(
            "nmt_request_seconds",
            "Time of a request.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self.batches = Histogram(
            "nmt_batch_texts", "Sentences of a batch.", buckets=TEXTS, registry=registry
        )
        waiting = Gauge("nmt_queue_texts", "Sentences that wait.", registry=registry)
        waiting.set_function(queue_length)
        self._registry = registry

    async def page(self, request: Request) -> Response:
        """GET /metrics."""
        return Response(
            generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    def measured(self, app: ASGIApp, routes: Collection[str]) -> ASGIApp:
        """Return the application `app`, with each request counted and written to the access log.

        Paths that are not in `routes` are "other". Requests with two lengths are refused here,
        whatever their route.
        """

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            code = 500  # unless the application answers: the error's answer is sent outside

            async def note(message: Message) -> None:
                nonlocal code
                code = message.get("status", code)
                await send(message)

            headers = Headers(scope=scope)
            two_lengths = "content-length" in headers and "transfer-encoding" in headers
            answered = AMBIGUOUS if two_lengths else app
            route = scope["path"] if scope["path"] in routes else "other"
            start = time.perf_counter()
            try:
                await answered(scope, receive, note)
            finally:
                seconds = time.perf_counter() - start
                self.seconds.labels(route).observe(seconds)
                self.requests.labels(route, code).inc()
                if route not in ROUTINE or code >= 400:
                    _log(scope, code, seconds)

        return answer


def _log(scope: Scope, code: int, seconds: float) -> None:
    client = "unknown"
    if scope["client"]:
        client = scope["client"][0]
    path = quote(scope["path"])  # without line feeds
    texts = counted(scope.get("state", {}).get("texts", 0), "text")
    access_log.info(f'{client} - "{scope["method"]} {path}" {code}, {texts}, {seconds:.3f} s')
