"""Hostile files, drawn by hypothesis: a reader reads them, or raises an error that names them.

`make faults` (NMT_FAULTS=long) draws many more, and new ones each time.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from long_form import LONG

from nmt_cli.errors import NmtError

counts = Counter[str]()
"""Faults that this process has caused: hostile `inputs`."""


def fuzz(few: int, many: int) -> Callable[[Any], Any]:
    """Choose the number of examples: (in a normal test run, with NMT_FAULTS=long)."""
    return settings(max_examples=many if LONG else few, suppress_health_check=list(HealthCheck))


odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([10**9, 2**63, -(2**63), 10**30, 1e308, float("nan"), float("inf")]),
    st.text(max_size=8),
    st.sampled_from(
        ["../../etc/passwd", "/etc/passwd", "..", "", "\0", "\ud800", "os.system", "1"]
    ),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all values inside a JSON value."""
    if path:
        yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:20])
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield from places(inner, (*path, key))


@st.composite
def tampered(draw: st.DrawFn, original: Any) -> Any:
    """A JSON value with a few values changed, removed or added."""
    value = json.loads(json.dumps(original))
    for _ in range(draw(st.integers(1, 3))):
        if not (all_places := list(places(value))):
            break
        *way, last = draw(st.sampled_from(all_places))
        at = reduce(getitem, way, value)
        match draw(st.sampled_from(["change", "change", "remove", "add"])):
            case "remove":
                del at[last]
            case "add" if isinstance(at, dict):
                at[draw(st.text(max_size=5))] = draw(odd_values)
            case _:
                at[last] = draw(odd_values)
    return value


@st.composite
def mangled(draw: st.DrawFn, original: bytes) -> bytes:
    """Bytes of which some are removed, replaced or added."""
    content = original
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        length = draw(st.sampled_from([0, 1, 2, 30, len(content)]))
        content = content[:at] + draw(st.binary(max_size=12)) + content[at + length :]
    return content


def outcome(act: Callable[[], Any], file: Path | str) -> bool:
    """Return whether `act` succeeds.

    Its error must be an NmtError that names the file or its directory.
    """
    counts["inputs"] += 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            act()
    except NmtError as error:
        told = str(error)
        if not any(str(place) in told for place in (file, Path(file).parent)):
            raise AssertionError(f"names neither the file nor its folder: {told}") from error
        return False
    return True


def copied(original: Path, folder: Path) -> Path:
    """A new copy that replaces an earlier one."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder, symlinks=True)
    return folder
