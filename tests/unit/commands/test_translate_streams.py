from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import rich.progress

from nmt_cli import registry
from nmt_cli.commands import translate_streams
from nmt_cli.commands.translate_options import FileOptions
from nmt_cli.cores import Sizes
from nmt_cli.files.opening import open_input
from nmt_cli.streams import warn


def test_progress_counts_the_bytes_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[float, float]] = []

    class Bar(rich.progress.Progress):
        def update(
            self, *arguments: object, completed: float | None = None, **more: object
        ) -> None:  # type: ignore[override]
            shown.append((completed or 0.0, self.tasks[0].total or 0.0))

    monkeypatch.setattr(rich.progress, "Progress", Bar)
    (tmp_path / "in").write_bytes(b"a\nb\nc\nd\ne\nf\n")
    with open_input(tmp_path / "in") as source:
        source.read()
        with translate_streams.progress(source, "scored", shown=True) as advance:
            advance(["c"])
            advance([*"defgh"])
    assert shown == [(2, 12), (12, 12)]


@pytest.mark.parametrize(
    ("read_ahead", "ranks", "expected"), [(None, 1, 3), (None, 2, 2), (4, 1, 4), (4, 2, 4)]
)
def test_lines_of_a_window(
    read_ahead: int | None,
    ranks: int,
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They suit the device, but not of one of several ranks: others would be without lines."""
    monkeypatch.setattr(translate_streams, "rank_and_size", lambda: (0, ranks))
    shared = nullcontext(translate_streams._results)
    monkeypatch.setattr(registry, "method", lambda name: lambda options: shared)
    monkeypatch.setattr(translate_streams, "READ_AHEAD", 2)
    (tmp_path / "in").write_text("a\n" * 9)
    options = FileOptions(input=tmp_path / "in", output=tmp_path / "out", quiet=True)
    windows = []

    def start(options: Any, stack: Any) -> Any:
        def work(advance: Any, first: int, lines: list[str], others: Any) -> Any:
            windows.append(len(lines))
            return [""], translate_streams.Totals(), []

        return work, Sizes(1, 1, 1, read_ahead=3)

    translate_streams.write_results(options, None, "scored", read_ahead, start)
    assert windows[0] == expected


def test_messages_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    warn("careful")
    assert capsys.readouterr() == ("", "warning: careful\n")
