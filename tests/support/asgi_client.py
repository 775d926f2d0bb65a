"""A client of an ASGI application, without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.types import ASGIApp


class Answer(NamedTuple):
    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """A client that sends a request, and leaves when `leave` is set."""

    app: ASGIApp
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    unfinished: bool = False  # the end of a body is never sent
    answer: Answer | None = None  # the last one, also before an error of the application
    headers: dict[str, str] = field(default_factory=dict)

    async def ask(self, method: str, path: str, parts: Sequence[bytes] = (b"",)) -> Answer:
        """Send the parts of a body one by one, and return the answer."""
        rest = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        rest[-1]["more_body"] = self.unfinished
        sent: list[Any] = []

        async def receive() -> Any:
            if not rest:
                await self.leave.wait()
                return {"type": "http.disconnect"}
            return rest.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "root_path": "",
        }
        scope |= {"raw_path": quote(path).encode(), "client": ("127.0.0.1", 5)}
        scope["headers"] = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        try:
            await self.app(scope, receive, send)
        finally:
            headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
            body = b"".join(message.get("body", b"") for message in sent)
            self.answer = Answer(sent[0]["status"], headers, body)
        return self.answer

    async def post(self, path: str, content: Any) -> Answer:
        return await self.ask("POST", path, [json.dumps(content).encode()])
