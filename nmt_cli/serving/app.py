"""The routes of `nmt serve`. Every error is answered as {"error": "..."}."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from nmt_cli.decoding.outputs import Translation
from nmt_cli.errors import NmtError
from nmt_cli.serving.limits import Limits
from nmt_cli.serving.metrics import Measured, Metrics
from nmt_cli.serving.queue import QueueFull, TranslationQueue

PAGE = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
CLIENT_GONE = 499  # the code that is counted, as nginx counts it, for a client that left before its answer

Result = TypeVar("Result")


def application(
    translate: Callable[[list[str]], Sequence[Translation]],
    limits: Limits,
    *,
    parallel: int,
    largest: int,
    check: Callable[[], None] = lambda: None,
    about: Mapping[str, Any] | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Starlette:
    """Return the ASGI application.

    Args:
        translate, parallel, largest: as for `TranslationQueue`.
        check: raises NmtError if nothing can be translated any more.
        about: the answer of `GET /info`.
        log: called with a line about each request.
    """
    metrics = Metrics(lambda: len(queue))
    queue = TranslationQueue(
        translate, parallel=parallel, largest=largest, size=limits.max_queue, started=metrics.batches.observe
    )
    service = Service(queue, limits, check, about or {})
    routes = [
        Route("/", page),
        Route("/health", service.health),
        Route("/info", service.info),
        Route("/metrics", metrics.page),
        Route("/translate", service.translate, methods=["POST"]),
        Route("/translate/batch", service.translate_batch, methods=["POST"]),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Measured, metrics=metrics, routes=[route.path for route in routes], log=log)],
        exception_handlers={
            HTTPException: refused,
            QueueFull: queue_full,
            TimeoutError: service.timed_out,
            ClientDisconnect: client_gone,
            NmtError: failed,
            Exception: broken,
        },
    )
    app.router.redirect_slashes = False  # another path is an error, as it would be for any other route
    return app


async def page(request: Request) -> Response:
    """GET /."""
    return HTMLResponse(PAGE)


class Service:
    """The routes that translate, and those about the server."""

    def __init__(
        self, queue: TranslationQueue[Translation], limits: Limits, check: Callable[[], None], about: Mapping[str, Any]
    ) -> None:
        self.queue, self.limits, self.check, self.about = queue, limits, check, about

    async def health(self, request: Request) -> Response:
        """GET /health."""
        self.check()
        return JSONResponse({"status": "ok"})

    async def info(self, request: Request) -> Response:
        """GET /info."""
        return JSONResponse(self.about)

    async def translate(self, request: Request) -> Response:
        """POST /translate."""
        async with asyncio.timeout(self.limits.timeout):
            text = self._line("text", await self._value(request, "text"))
            (answer,) = await self._answers(request, {"text": text})
        return JSONResponse(answer)

    async def translate_batch(self, request: Request) -> Response:
        """POST /translate/batch."""
        async with asyncio.timeout(self.limits.timeout):
            texts = await self._value(request, "texts")
            if not isinstance(texts, list):
                raise HTTPException(400, '"texts" must be a list of strings')
            if len(texts) > self.limits.max_texts:
                raise HTTPException(
                    413, f'"texts" has {len(texts):,} lines; at most {self.limits.max_texts:,} are taken'
                )
            lines = {f"texts[{n}]": self._line(f"texts[{n}]", text) for n, text in enumerate(texts)}
            answers = await self._answers(request, lines)
        return JSONResponse({"translations": answers})

    async def timed_out(self, request: Request, error: Exception) -> Response:
        """The answer to a request that took too long: 408 if its body did not come, 503 if its answer did not."""
        if not hasattr(request.state, "content"):
            message = f"the body did not arrive within {self.limits.timeout:g} s"
            return answer_error(408, message, {"Connection": "close"})
        return answer_error(503, f"not answered within {self.limits.timeout:g} s; try again later, or send less")

    async def _value(self, request: Request, field: str) -> Any:
        """Return the value of `field`, which must be the only one of the JSON object that is sent."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self.limits.max_body:
                raise HTTPException(413, f"the body has more than {self.limits.max_body:,} bytes")
        content = request.state.content = _json(bytes(body))
        if not isinstance(content, dict) or field not in content:
            raise HTTPException(400, f'the body must be a JSON object with the field "{field}"')
        for name in content.keys() - {field}:
            raise HTTPException(400, f'unknown field {name[:40]!r}; the only field is "{field}"')
        return content[field]

    def _line(self, name: str, text: Any) -> str:
        """Return the text called `name` if it is one line within the limits."""
        if not isinstance(text, str):
            raise HTTPException(400, f'"{name}" must be a string')
        if len(text) > self.limits.max_characters:
            most = self.limits.max_characters
            raise HTTPException(413, f'"{name}" has {len(text):,} characters; at most {most:,} are taken')
        if "\n" in text.strip():
            raise HTTPException(400, f'"{name}" has several lines; send a text for each to /translate/batch')
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise HTTPException(400, f'"{name}" has half of a surrogate pair, which is not a character') from error
        return text

    async def _answers(self, request: Request, texts: dict[str, str]) -> list[dict[str, Any]]:
        """Return the answers to texts, given by name."""
        translations = await unless_client_leaves(request, self.queue.translate([*texts.values()]))
        for name, translation in zip(texts, translations, strict=True):
            if translation.truncated:
                raise HTTPException(413, f'"{name}" is too long: it has more tokens than --max-source-length')
        best = [translation.outputs[0] for translation in translations]
        return [{"translation": output.text, "score": round(output.score, 4)} for output in best]


def _json(body: bytes) -> Any:
    """Return the content of a body.

    Raises:
        HTTPException: it is not JSON.
    """
    try:
        return json.loads(body.decode("utf-8-sig"), parse_int=float)  # Python refuses to read very long integers
    except UnicodeDecodeError as error:
        raise HTTPException(400, f"the body is not UTF-8 (byte {error.start + 1})") from error
    except RecursionError as error:
        raise HTTPException(400, "the body is not the JSON expected: it is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from error


async def unless_client_leaves(request: Request, work: Awaitable[Result]) -> Result:
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


def answer_error(code: int, message: str, headers: Any = None) -> Response:
    return JSONResponse({"error": message}, code, headers)


async def refused(request: Request, error: Exception) -> Response:
    """The answer to a wrong request: also to a path without a route, and to a method that its route does not have."""
    assert isinstance(error, HTTPException)
    message = error.detail
    if error.status_code == 404:
        message = "there is nothing at this path; GET / is a page to type into, POST /translate translates"
    if error.status_code == 405:
        message = f"{request.url.path} takes {(error.headers or {}).get('Allow')}, not {request.method}"
    return answer_error(error.status_code, message, error.headers)


async def queue_full(request: Request, error: Exception) -> Response:
    return answer_error(429, "too many texts are waiting; try again later", {"Retry-After": "1"})


async def client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)  # counted, and sent to nobody


async def failed(request: Request, error: Exception) -> Response:
    return answer_error(500, str(error))


async def broken(request: Request, error: Exception) -> Response:
    """The answer after an error that should not happen; its traceback is logged."""
    return answer_error(500, "internal error; the server's standard error has more")
