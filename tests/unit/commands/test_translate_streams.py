from __future__ import annotations

from pathlib import Path

import pytest
import rich.progress

from nmt_cli.commands import translate_streams
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


def test_messages_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    warn("careful")
    assert capsys.readouterr() == ("", "warning: careful\n")
