"""The routes of `nmt serve`. Every error is answered as {"error": "..."}."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from nmt_cli.annexes.serving.limits import Limits
from nmt_cli.annexes.serving.metrics import Metrics
from nmt_cli.annexes.serving.queue import TranslationQueue
from nmt_cli.data.parallel import WorkerDied
from nmt_cli.decoding.around import Chain, Reading
from nmt_cli.decoding.outputs import Translation
from nmt_cli.errors import NmtError, shown
from nmt_cli.files.settings import from_json

PAGE = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
UNEXPECTED = "internal error; the server's standard error has more"  # there is its traceback
# The code that is counted, as nginx counts it, for a client that left before its answer.
CLIENT_GONE = 499


def application(
    queue: TranslationQueue,
    limits: Limits,
    *,
    chain: Chain,
    about: Mapping[str, Any] | None = None,
    check: Callable[[], None] = lambda: None,
    died: Callable[[WorkerDied], None] = lambda error: None,
) -> Starlette:
    """Return the ASGI application.

    Args:
        queue: of sentences.
        chain: what goes around the translation of a text.
        about: the answer of `GET /info`.
        check: raises WorkerDied if nothing can be translated any more.
        died: called with that error, which the queue may raise, too.
    """
    metrics = Metrics(queue.__len__)
    queue.started = metrics.batches.observe
    service = Service(queue, chain, limits)

    async def health(request: Request) -> Response:
        check()
        return JSONResponse({"status": "ok"})

    async def failed(request: Request, error: Exception) -> Response:
        # Also of a path without a route, and of a method that its route lacks.
        if isinstance(error, HTTPException):
            return JSONResponse({"error": error.detail}, error.status_code, error.headers)
        if isinstance(error, WorkerDied):
            died(error)
        message = UNEXPECTED
        if isinstance(error, NmtError):
            message = str(error)
        return JSONResponse({"error": message}, 500)

    routes = [
        Route("/", HTMLResponse(PAGE), methods=["GET"]),
        Route("/info", JSONResponse(about or {}), methods=["GET"]),
        Route("/health", health),
        Route("/metrics", metrics.page),
        Route("/translate", service.translate, methods=["POST"]),
        Route("/translate/batch", service.translate_batch, methods=["POST"]),
    ]
    paths = [route.path for route in routes]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(metrics.measured, routes=paths)],
        exception_handlers={
            HTTPException: failed,
            ClientDisconnect: client_gone,
            NmtError: failed,
            Exception: failed,
        },
    )
    app.router.redirect_slashes = False  # a redirection has no JSON
    return app


class Service:
    """The routes of translation."""

    def __init__(self, queue: TranslationQueue, chain: Chain, limits: Limits) -> None:
        self.queue, self.chain, self.limits = queue, chain, limits

    async def translate(self, request: Request) -> Response:
        """POST /translate."""
        text = self._line("text", await self._value(request, "text"))
        (answer,) = await self._answers(request, {"text": text})
        return JSONResponse(answer)

    async def translate_batch(self, request: Request) -> Response:
        """POST /translate/batch."""
        texts = await self._value(request, "texts")
        if not isinstance(texts, list):
            raise HTTPException(400, '"texts" must be a list of strings')
        most = self.limits.max_texts
        if len(texts) > most:
            raise HTTPException(
                413, f'"texts" has {len(texts):,} lines; at most {most:,} are taken'
            )
        lines = {}
        for number, text in enumerate(texts):
            name = f"texts[{number}]"
            lines[name] = self._line(name, text)
        return JSONResponse({"translations": await self._answers(request, lines)})

    async def _value(self, request: Request, field: str) -> Any:
        """Return the value of `field`, the only one of the JSON object in the body."""
        content_type = request.headers.get("content-type", "")
        # Browsers let a page of any server send other types, also to the servers of this machine.
        if "origin" in request.headers and not content_type.startswith("application/json"):
            raise HTTPException(
                415, "web pages must send the header Content-Type: application/json"
            )
        body = await self._body(request)
        try:
            content = from_json(body)
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, f"the body is not JSON in UTF-8: {error}") from error
        if not isinstance(content, dict) or field not in content:
            raise HTTPException(400, f'the body must be a JSON object with the field "{field}"')
        for name in content.keys() - {field}:
            raise HTTPException(400, f'unknown field {shown(name)}; the only field is "{field}"')
        return content[field]

    async def _body(self, request: Request) -> bytearray:
        body = bytearray()
        timeout, most = self.limits.timeout, self.limits.max_body
        try:
            async with asyncio.timeout(timeout):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise HTTPException(413, f"the body has more than {most:,} bytes")
        except TimeoutError as error:
            raise HTTPException(
                408, f"the body did not arrive within {timeout:g} s", {"Connection": "close"}
            ) from error
        return body

    def _line(self, name: str, text: Any) -> str:
        """Return the text called `name` if it is one line within the limits."""
        if not isinstance(text, str):
            raise HTTPException(400, f'"{name}" must be a string')
        most = self.limits.max_characters
        if len(text) > most:
            raise HTTPException(
                413, f'"{name}" has {len(text):,} characters; at most {most:,} are taken'
            )
        if "\n" in text.strip():
            raise HTTPException(
                400, f'"{name}" has several lines; send a text for each to /translate/batch'
            )
        return text.encode(errors="replace").decode()  # JSON may have half of a surrogate pair

    async def _answers(self, request: Request, texts: dict[str, str]) -> list[dict[str, Any]]:
        """Return the answers to texts, given by name."""
        request.state.texts = len(texts)  # for the log
        readings = await self._read(texts.values())
        if len(self.queue) >= self.limits.max_queue:
            raise HTTPException(
                429, "too many sentences are waiting; try again later", {"Retry-After": "1"}
            )
        timeout = self.limits.timeout
        sentences = [text for reading in readings for text in reading.texts]
        try:
            async with asyncio.timeout(timeout):
                work = self.queue.translate(sentences)
                results = iter(await unless_client_leaves(request, work))
        except TimeoutError as error:
            raise HTTPException(
                503, f"not answered within {timeout:g} s; try again later, or send less"
            ) from error
        answers = []
        for name, reading in zip(texts, readings, strict=True):
            translation = self.chain.write(islice(results, len(reading.texts)), reading.layers)
            if translation.truncated:
                raise HTTPException(
                    413, f'"{name}" is too long: it has more tokens than --max-source-length'
                )
            output = translation.outputs[0]
            answers.append({"translation": output.text, "score": round(output.score, 4)})
        return answers

    async def _read(self, texts: Collection[str]) -> list[Reading]:
        """Return what the chain reads in each text."""
        readings = list[Reading]()
        sentences = 0
        most = max(self.limits.max_sentences, len(texts))
        for text in texts:
            reading = self.chain.read(text)
            readings.append(reading)
            sentences += len(reading.texts)
            if sentences > most:
                raise HTTPException(
                    413, f"the request has more than {most:,} sentences; send less at a time"
                )
            # Splitting takes milliseconds, and other requests have their turn.
            await asyncio.sleep(0)
        return readings


async def unless_client_leaves(
    request: Request, work: Awaitable[list[Translation]]
) -> list[Translation]:
    """Return the result of `work`, which is cancelled if the client disconnects.

    Raises:
        ClientDisconnect: it did.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.receive())  # the body was read, so only the end can come
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        task.cancel()
        gone.cancel()


async def client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)  # counted, and sent to nobody
