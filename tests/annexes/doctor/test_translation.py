"""`nmt doctor --translate`: hours and cost of a translation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli.annexes.doctor import translation as module

Nmt = Callable[..., tuple[int, str, str]]


def test_words_of_the_vocabulary_or_a_text(
    nmt: Nmt, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.0)
    (tmp_path / "text").write_text("abc\n" * 3)
    for words in ((), ("--input", tmp_path / "text")):
        flags = ("--translate", 7200, "--price", 3, "--device", "cpu", "--json")
        code, out, _ = nmt("doctor", tiny_checkpoint, *flags, *words)
        (check,) = json.loads(out)
        figures = check["figures"]
        assert (code, check["name"], check["verdict"]) == (0, "translation", "ok")
        assert figures["hours"] == pytest.approx(2 / figures["lines_per_second"])
        assert figures["cost"] == pytest.approx(3 * figures["hours"])


def test_the_rate_is_that_of_the_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first window prepares a GPU, and the second one shows how many lines fit into a time."""
    clock = SimpleNamespace(now=0.0, windows=list[int]())

    def translate(lines: Sequence[str], workers: Any) -> None:
        assert set(lines) <= {f"line {number}" for number in range(5000)}
        clock.now += 5 if not clock.windows else len(lines) / 100
        clock.windows.append(len(lines))

    engine = SimpleNamespace(workers=lambda *_: nullcontext())
    translator = SimpleNamespace(engine=engine, read_ahead=1024, translate_window=translate)
    monkeypatch.setattr(module, "load_translator", lambda *_, **__: translator)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock.now)
    (tmp_path / "text").write_text("".join(f"line {number}\n" for number in range(5000)))
    check = module.translation([tmp_path], "cpu", 360_000, tmp_path / "text", None)
    assert clock.windows == [64, 128, 256, 512, 1024]
    assert check.value == "360,000 lines, 100 a second: 1:00:00, 1 device-hours"


def test_text_without_a_translation_is_refused(nmt: Nmt, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("abc\n")
    code, _, messages = nmt("doctor", "--input", tmp_path / "text")
    assert code == 2
    assert "--translate" in messages
