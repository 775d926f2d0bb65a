"""The pages of this package: HTML files that load nothing from the network.

`page.html` is the frame. A part of a page is a file of markup and a file of code, such as
`attention.html` and `attention.js`. All parts share `style.css` and `shared.js`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any


def page(heading: str, about: str, parts: Sequence[str], data: Any) -> bytes:
    """Return a page.

    Args:
        about: text beside the heading.
        parts: names of parts, in the order of the page.
        data: what the code of the parts finds as `DATA`.
    """
    values = {
        "title": escape(f"{heading} · {about}"),
        "heading": escape(heading),
        "about": escape(about),
        "style": file("style.css"),
        "body": "".join(file(f"{part}.html") for part in parts),
        "script": "\n".join(file(f"{part}.js") for part in ("shared", *parts)),
        "data": embedded(data),
    }
    html = re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], file("page.html"))
    return html.encode(errors="replace")  # names of files may be any bytes


def file(name: str) -> str:
    return resources.files("nmt_cli.annexes.report").joinpath(name).read_text(encoding="utf-8")


def embedded(data: Any) -> str:
    """Return JSON for an HTML script element. It contains no `<`, so no tag can begin in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")
