"""Which libraries decide the ids of a text, so that a library that has changed its mind is noticed."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable, Mapping


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """The installed versions of `libraries`, and Python's own because of its Unicode tables."""
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        **{name: importlib.metadata.version(name) for name in libraries},
    }


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The warning for a model whose text gets other ids here than where it was prepared."""
    return (
        "text gets other ids here than where this model was prepared, so its output may be worse. "
        f"It was prepared with {_listed(then)}; here is {_listed(now)}. Install the former versions to be safe."
    )


def _listed(libraries: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in libraries.items())
