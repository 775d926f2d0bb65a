"""The metrics of `GET /metrics`, in the text format of Prometheus, and the log line of each request."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

disable_created_metrics()  # type: ignore[no-untyped-call]  # nobody reads when a counter was made
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The metrics of one server.

    Args:
        queue_length: returns the number of waiting texts.
    """

    def __init__(self, queue_length: Callable[[], int]) -> None:
        registry = CollectorRegistry()
        self.requests = Counter("nmt_requests", "Requests that were answered.", ["route", "code"], registry=registry)
        self.seconds = Histogram(
            "nmt_request_seconds", "Time of a request.", ["route"], buckets=SECONDS, registry=registry
        )
        self.batches = Histogram("nmt_batch_texts", "Texts of a batch.", buckets=TEXTS, registry=registry)
        Gauge("nmt_queue_texts", "Texts that wait.", registry=registry).set_function(queue_length)
        self._registry = registry

    async def page(self, request: Request) -> Response:
        """GET /metrics."""
        return Response(generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


class Measured:
    """The application `app`, with each request counted in `metrics` and logged.

    Args:
        routes: the paths with counts of their own; all others are the route "other".
        log: called with a line about each request.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: Collection[str], log: Callable[[str], None]) -> None:
        self.app, self.metrics, self.routes, self.log = app, metrics, routes, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        code = 500  # unless the application answers: the error's answer is sent outside

        async def note(message: Message) -> None:
            nonlocal code
            code = message.get("status", code)
            await send(message)

        route = scope["path"] if scope["path"] in self.routes else "other"
        start = time.perf_counter()
        try:
            await self.app(scope, receive, note)
        finally:
            seconds = time.perf_counter() - start
            self.metrics.seconds.labels(route).observe(seconds)
            self.metrics.requests.labels(route, code).inc()
            host = (scope.get("client") or ("-",))[0]
            path = scope.get("raw_path", b"")[:200].decode("ascii", "replace")  # as sent: no control characters
            self.log(f'{time.strftime("%Y-%m-%d %H:%M:%S")} {host} "{scope["method"]} {path}" {code} {seconds:.3f} s')
