"""A translator that waits until it is told to go on, and a client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from asgi_client import Client
from starlette.types import ASGIApp

from nmt_cli.decoding.outputs import Output, Translation


@dataclass
class Backwards:
    """Translates texts into their letters in reverse order, and notes the batches."""

    batches: list[list[str]] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def __call__(self, texts: list[str]) -> list[Translation]:
        self.batches.append(texts)
        assert self.go.wait(60)
        if self.error:
            raise self.error
        return [
            Translation(
                text,
                [Output(text[::-1], -len(text) / 3, [], [])],
                len(text),
                truncated="long" in text,
            )
            for text in texts
        ]


@pytest.fixture
def backwards() -> Iterator[Backwards]:
    """It translates at once, unless a test clears `go`."""
    translator = Backwards()
    translator.go.set()
    yield translator
    translator.go.set()  # a thread that waits would keep the process


@pytest.fixture
def client() -> Callable[[ASGIApp], Client]:
    return Client
