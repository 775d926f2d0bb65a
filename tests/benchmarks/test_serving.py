from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.serving import arguments


@pytest.mark.parametrize("flags", [[], ["--dtype", "int8"]])
def test_flags_for_both_commands_come_after_two_dashes(flags: list[str]) -> None:
    options = arguments(
        ["run", "--input", "lines", "--clients", "1", "8", *(["--", *flags] if flags else [])]
    )
    assert (options.checkpoint, options.input, options.clients) == (
        Path("run"),
        Path("lines"),
        [1, 8],
    )
    assert options.flags == flags
