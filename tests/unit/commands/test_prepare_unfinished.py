"""An interrupted `nmt prepare` goes on from what it has finished, and gives the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt_cli import registry
from nmt_cli.commands import prepare_text
from nmt_cli.commands.prepare import PrepareOptions, prepare
from nmt_cli.commands.prepare_unfinished import Unfinished
from nmt_cli.errors import NmtError
from nmt_cli.files import parallel_text

FLAGS = {"source_lang": "en", "target_lang": "de", "vocab_size": 50, "separate_vocabularies": True}
WORDS = "the small big old dog cat man runs sleeps sees in under house".split()


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three training files and a validation file; shards are small."""
    registry.discover(homes=("tasks",))
    monkeypatch.setattr(parallel_text, "BLOCK", 4)
    monkeypatch.setattr(prepare_text, "_SHARD", 3)
    for name, count, start in (("a", 30, 0), ("b", 21, 20), ("valid", 5, 28)):
        for language in ("en", "de"):
            lines = [f"{WORDS[i % 13]} {WORDS[i * 7 % 11]} {i} {language}\n" for i in range(start, start + count)]
            (tmp_path / f"{name}.{language}").write_text("".join(lines))
    return tmp_path


def options(text: Path, out: str, **more: Any) -> PrepareOptions:
    train = (str(text / "a"), f"{text / 'b'}*3")
    return PrepareOptions(out=text / out, train=train, valid=str(text / "valid"), workers=1, **more)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def stop(monkeypatch: pytest.MonkeyPatch, text: Path, at: int, error: BaseException, before: bool = False) -> None:
    """Run the command until it records its progress for the time `at`; raise `error` then, or just before."""
    save, times = Unfinished.save, 0

    def counted(unfinished: Unfinished, **stage: Any) -> None:
        nonlocal times
        times += 1
        if not before or times < at:
            save(unfinished, **stage)
        if times == at:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(Unfinished, "save", counted)
        with pytest.raises(type(error)):
            prepare(options(text, "data"), FLAGS)
    assert not (text / "data").exists()


# The second record is that of the vocabulary; shards follow.
@pytest.mark.parametrize(("at", "before"), [(2, True), (3, False), (5, True)])
def test_same_bytes_as_without_the_interruption(
    text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at: int, before: bool
) -> None:
    prepare(options(text, "whole"), FLAGS)
    whole = capsys.readouterr().err
    stop(monkeypatch, text, at, KeyboardInterrupt(), before)
    capsys.readouterr()
    prepare(options(text, "data"), FLAGS)
    assert contents(text / "data") == contents(text / "whole")
    assert not list(text.glob(".*"))
    error = capsys.readouterr().err
    assert "going on where the interrupted command stopped\n" in error
    assert "reading train" not in error
    assert ("learning" in error) == (at == 2 and before)
    warning = [line for line in whole.splitlines() if line.startswith("warning")]
    assert [line for line in error.splitlines() if line.startswith("warning")] == warning != []


def test_two_interruptions_and_a_dead_worker(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(options(text, "whole"), FLAGS)
    stop(monkeypatch, text, 1, NmtError("a worker process died"))
    stop(monkeypatch, text, 2, KeyboardInterrupt())
    prepare(options(text, "data"), FLAGS)
    assert contents(text / "data") == contents(text / "whole")


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("one more\n")


@pytest.mark.parametrize(
    ("change", "more", "flags"),
    [
        (lambda text: [append(text / f"b.{language}") for language in ("en", "de")], {}, {}),
        (lambda text: (text / "a.de").write_text((text / "a.de").read_text().replace("dog", "god")), {}, {}),
        (lambda text: None, {"keep_duplicates": True}, {}),
        (lambda text: None, {}, {"vocab_size": 45}),
    ],
)
def test_changed_text_or_flags_start_anew(
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], Any],
    more: dict[str, Any],
    flags: dict[str, Any],
) -> None:
    stop(monkeypatch, text, 4, KeyboardInterrupt())
    change(text)
    capsys.readouterr()
    prepare(options(text, "data", **more), {**FLAGS, **flags})
    error = capsys.readouterr().err
    assert "starting anew: the text, the flags or the version" in error
    assert "reading train" in error
    prepare(options(text, "whole", **more), {**FLAGS, **flags})
    assert contents(text / "data") == contents(text / "whole")


def test_an_interruption_before_anything_is_finished_leaves_nothing(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop(monkeypatch, text, 1, KeyboardInterrupt(), before=True)
    assert not list(text.glob(".*"))


def test_an_error_of_the_disk_leaves_nothing(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop(monkeypatch, text, 3, OSError(5, "Input/output error"))
    assert not list(text.glob(".*"))


KILLED = """
import os, signal, sys
from pathlib import Path
from nmt_cli import registry
from nmt_cli.commands import prepare, prepare_text
from nmt_cli.data.corpus import CorpusWriter
from nmt_cli.files import parallel_text
parallel_text.BLOCK, prepare_text._SHARD = 4, 3
flush, times = CorpusWriter.flush, []
def killed(writer):
    times.append(flush(writer))
    if len(times) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return times[-1]
CorpusWriter.flush = killed
registry.discover(homes=("tasks",))
out, a, b, valid = sys.argv[1:]
options = prepare.PrepareOptions(out=Path(out), train=(a, b), valid=valid, workers=2)
prepare.prepare(options, {flags})
"""


def test_killed_and_started_again(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = options(text, "data")
    command = [
        sys.executable,
        "-c",
        KILLED.replace("{flags}", repr(FLAGS)),
        str(again.out),
        *again.train,
        str(again.valid),
    ]
    killed = subprocess.run(command, capture_output=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    offsets = text / ".data.unfinished" / "train.source.offsets"
    assert os.path.getsize(offsets) > 8 * 4
    prepare(options(text, "whole"), FLAGS)
    capsys.readouterr()
    prepare(again, FLAGS)
    assert "going on" in capsys.readouterr().err
    assert contents(text / "data") == contents(text / "whole")
