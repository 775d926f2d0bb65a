"""The limits of `nmt serve`."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.registry import option


@dataclass(frozen=True)
class Limits:
    """The limits of a request. A text is one line, as in `nmt translate`."""

    timeout: float = option(
        30.0,
        "Request timeout in seconds. The server then replies 503 and drops the request's texts.",
        minimum=0.001,
    )
    max_body: int = option(1_048_576, "Maximum bytes of a request.", minimum=1)
    max_texts: int = option(256, "Maximum texts of a request.", minimum=1)
    max_characters: int = option(5000, "Maximum characters of a text.", minimum=1)
    max_sentences: int = option(
        1024, "Maximum sentences of a request, if its texts are split.", minimum=1
    )
    max_queue: int = option(
        1024, "Refuse requests (429) while N sentences or more wait.", minimum=1
    )
    max_connections: int = option(512, "Maximum connections. More are closed.", minimum=1)
