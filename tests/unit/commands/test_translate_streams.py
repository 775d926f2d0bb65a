from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.commands import translate_streams
from nmt_cli.commands.translate_streams import part_of, progress
from nmt_cli.errors import DataError, UsageError
from nmt_cli.files.opening import open_input
from nmt_cli.streams import warn


@given(lines=st.integers(0, 50), count=st.integers(1, 60))
def test_the_parts_joined_are_the_whole(lines: int, count: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(translate_streams, "count_lines", lambda path: lines)
        parts = [part_of(Path(__file__), f"{number}/{count}") for number in range(1, count + 1)]
    assert [number for part in parts for number in part] == list(range(1, lines + 1))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "1/0", "-1/2", "a/b", "1/2/3", "", "1.0/2", "9" * 5000 + "/1"])
def test_a_shard_that_is_none_is_refused(shard: str) -> None:
    with pytest.raises(UsageError, match=r"--shard must be I/N with I from 1 to N"):
        part_of(Path(__file__), shard)


def test_a_pipe_has_no_parts() -> None:
    with pytest.raises(DataError, match=r"/dev/null: .*expected a regular file"):
        part_of(Path("/dev/null"), "1/2")


@pytest.mark.parametrize(("part", "total"), [(range(3, 5), 2), (None, 12)])
def test_progress_of_a_part_counts_its_lines(
    part: range | None, total: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the whole file it counts bytes, as its lines have not been counted."""
    shown: list[tuple[float, float]] = []

    class Bar(translate_streams.Progress):
        def update(self, *arguments: object, completed: float | None = None, **more: object) -> None:  # type: ignore[override]
            shown.append((completed or 0.0, self.tasks[0].total or 0.0))

    monkeypatch.setattr(translate_streams, "Progress", Bar)
    (tmp_path / "in").write_bytes(b"a\nb\nc\nd\ne\nf\n")
    with open_input(tmp_path / "in") as source:
        source.read()
        with progress(source, "scored", shown=True, part=part or translate_streams.ALL_LINES) as advance:
            advance(["c"])
            advance(["d"] if part else [*"defgh"])
    assert shown == [(total / (2 if part else 6), total), (total, total)]


def test_messages_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    warn("careful")
    assert capsys.readouterr() == ("", "warning: careful\n")
