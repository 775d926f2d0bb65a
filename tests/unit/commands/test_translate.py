from __future__ import annotations

import contextlib
import fcntl
import gzip
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from nmt_cli import registry
from nmt_cli.cli import main
from nmt_cli.commands.translate import translate
from nmt_cli.commands.translate_options import TranslateCommandOptions
from nmt_cli.errors import CheckpointError, DataError, UsageError

NMT = (sys.executable, "-m", "nmt_cli", "translate")
PATIENCE = 300
"""Seconds for what takes one or two on a machine that has nothing else to do."""


@pytest.fixture
def settings(tiny_checkpoint: Path, tmp_path: Path) -> TranslateCommandOptions:
    options = TranslateCommandOptions(
        checkpoints=(tiny_checkpoint,), input=tmp_path / "in", output=tmp_path / "out", device="cpu"
    )
    return changed(options, beam=2, max_length_offset=3)


def changed(settings: TranslateCommandOptions, **options: Any) -> TranslateCommandOptions:
    """Return the flags with other options of translation."""
    return replace(settings, translation=settings.translation.replaced(options))


def run(settings: TranslateCommandOptions, content: bytes) -> list[str]:
    assert settings.input is not None
    assert settings.output is not None
    settings.input.write_bytes(content)
    translate(settings)
    written = settings.output.read_bytes().decode()
    assert written == "" or written.endswith("\n")
    return written.split("\n")[:-1]


def test_one_line_out_for_each_line_in(
    settings: TranslateCommandOptions, capfd: pytest.CaptureFixture[str]
) -> None:
    out = run(settings, b"abc\n\n  \nhgf\x00\r\nde\xe2\x80\xa8f\nab")
    assert [bool(line) for line in out] == [True, False, False, True, True, True]
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("translated 6 lines in ")
    assert run(settings, b"") == []


def test_windows_and_batches_change_neither_order_nor_samples(
    settings: TranslateCommandOptions,
) -> None:
    text = b"abc\nhg\n\nabc\nabcdefgh\nabc\n" * 3
    for how in ({"beam": 2}, {"sample": True, "nbest": 3, "temperature": 2.0, "seed": 7}):
        whole = run(changed(settings, **how), text)
        assert whole == run(changed(settings, **how, read_ahead=2, batch_tokens=9), text)
    assert len({row.split("\t")[2] for row in whole if row.split("\t")[0] in ("1", "4", "6")}) > 3


def test_warnings_name_the_line_and_are_counted(
    settings: TranslateCommandOptions, capfd: pytest.CaptureFixture[str]
) -> None:
    limited = changed(settings, max_source_length=4, read_ahead=2)
    text = b"abc\na\xffb\nabc\nabcdefgh\nab\n" + b"ab" * 50_000 + b"\na\xff" * 12
    assert len(run(limited, text)) == 18
    warnings = [line for line in capfd.readouterr().err.split("\n") if line.startswith("warning")]
    name = str(settings.input)
    assert [w.split(": ")[1] for w in warnings[:3]] == [f"{name}:2", f"{name}:4", f"{name}:6"]
    assert "0xff" in warnings[0]
    assert "--max-source-length" in warnings[1]
    assert "10 more" in warnings[-1]
    run(replace(limited, quiet=True), text)
    assert capfd.readouterr().err == ""


def test_lines_without_a_known_character_have_a_warning(
    settings: TranslateCommandOptions, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(settings, "abc\n\u00ad\u2060\n日 本\n日a\n".encode())[1] == ""
    warnings = [line for line in capfd.readouterr().err.split("\n") if line.startswith("warning")]
    assert len(warnings) == 1
    assert f"{settings.input}:3: nothing of this line is in the vocabulary" in warnings[0]


def test_n_best(settings: TranslateCommandOptions) -> None:
    best = run(settings, b"abc\n\nhg")
    rows = [row.split("\t") for row in run(changed(settings, nbest=2), b"abc\n\nhg")]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3"]
    assert [rows[0][2], rows[2][2], rows[3][2]] == best


def test_gzip_in_and_out(
    settings: TranslateCommandOptions, tmp_path: Path, forked_nmt: Path
) -> None:
    plain = run(settings, b"abc\nde\n")
    assert run(settings, gzip.compress(b"abc\nde\n")) == plain  # under a plain name
    flags = (
        *"--device cpu --max-length-offset 3 --beam 2 --output".split(),
        tmp_path / "out.gz",
    )
    command = [forked_nmt, "translate", settings.checkpoints[0], *flags]
    done = subprocess.run(
        command, input=gzip.compress(b"abc\nde\n"), stdout=subprocess.PIPE, check=True
    )
    assert done.stdout == b""
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()).decode().split("\n")[:-1] == plain
    with pytest.raises(DataError, match=r"in: .*gzip"):
        run(settings, gzip.compress(os.urandom(1000))[:50])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--beam", "2", "--nbest", "3"], "--nbest"),
        (["--device", "abacus"], "abacus"),
        (["--constrained"], "--constrained"),
        (["--beem", "2"], "--beam"),
        (["--beam", "0"], "--beam"),
        (["--format", "xml"], "--format"),
        (["--greedy"], "use --beam 1"),
        (["-attn_debug"], "`nmt attention`"),
        (["--replace-unknown"], "whole words"),
        (["--dictionary", "words"], "--replace-unknown"),
        (["--output", "/absent/x"], "no directory /absent"),
    ],
)
def test_wrong_flags(
    settings: TranslateCommandOptions,
    flags: list[str],
    message: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (settings.input or Path()).write_text("abc")
    with pytest.raises(SystemExit) as end:
        main(["translate", str(settings.checkpoints[0]), "--input", str(settings.input), *flags])
    assert end.value.code == 2
    captured = capfd.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_flags_reach_the_search(
    settings: TranslateCommandOptions, capfd: pytest.CaptureFixture[str]
) -> None:
    (settings.input or Path()).write_text("abc\nhg\n")

    def out(*flags: str) -> str:
        with pytest.raises(SystemExit, match="0"):
            main(
                [
                    "translate",
                    str(settings.checkpoints[0]),
                    "--input",
                    str(settings.input),
                    "--device",
                    "cpu",
                    *flags,
                ]
            )
        return capfd.readouterr().out

    assert len(out("--max-length-offset", "0").split("\n")[1]) <= 3
    assert len(out("--min-length", "99").split("\n")[1]) == 99
    assert len(out("--nbest", "4").split("\n")) == 9
    assert out("--alpha", "0", "--format", "tsv") != out("--alpha", "2", "--format", "tsv")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"input": "missing"}, DataError, "missing"),
        ({"input": "."}, DataError, "directory"),
        ({"checkpoints": "in"}, UsageError, "--input"),
        ({"checkpoints": "."}, CheckpointError, "config.json"),
        ({"output": "link"}, UsageError, "also an input"),
        ({"output": "prefixes", "prefix": "prefixes"}, UsageError, "also an input"),
        ({"alignments": "link"}, UsageError, "also an input"),
        ({"alignments": "prefixes", "prefix": "prefixes"}, UsageError, "also an input"),
        ({"alignments": "out"}, UsageError, "out is also the output"),
        ({"alignments": "nothing/links"}, UsageError, "no directory"),
        ({"prefix": "missing"}, DataError, "missing: cannot read"),
        ({"prefix": "prefixes"}, DataError, "prefixes:2: not valid UTF-8"),
        ({"interactive": True}, UsageError, "--interactive cannot"),
    ],
)
def test_wrong_files_are_named_and_none_is_written(
    settings: TranslateCommandOptions,
    tmp_path: Path,
    change: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    contents = {"in": b"abc\nhg\n", "out": b"precious", "prefixes": b"a\n\xff\n"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link").hardlink_to(tmp_path / "in")
    paths: dict[str, Any] = {
        name: tmp_path / new_name if isinstance(new_name, str) else new_name
        for name, new_name in change.items()
    }
    if "checkpoints" in paths:
        paths["checkpoints"] = (paths["checkpoints"],)
    settings = changed(settings, alignments=paths.pop("alignments", None))
    with pytest.raises(error, match=message):
        translate(replace(settings, **paths))
    assert {name: (tmp_path / name).read_bytes() for name in contents} == contents
    assert len([*tmp_path.iterdir()]) == 4


def test_standard_input_is_never_overwritten(
    forked_nmt: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("abc\nhg\n")
    with start(
        forked_nmt, tiny_checkpoint, stdin=text.open("rb"), stdout=text.open("ab")
    ) as process:
        assert process.stderr is not None
        assert b"is also an input" in process.stderr.read()
        assert process.wait(PATIENCE) == 2
    assert text.read_text() == "abc\nhg\n"


def test_outputs_begin_with_the_lines_of_the_prefix_file(
    settings: TranslateCommandOptions, tmp_path: Path
) -> None:
    lines, prefixes = ["abc", "hg", "", "de", "fgh"], ["ba", "", "c", "hhh ", "g"]
    free = run(settings, "\n".join(lines).encode())
    (tmp_path / "prefixes").write_bytes(gzip.compress("\n".join(prefixes).encode()))
    forced = replace(changed(settings, read_ahead=2), prefix=tmp_path / "prefixes")
    out = run(forced, "\n".join(lines).encode())
    assert [out[i].startswith(prefixes[i].strip()) for i in (0, 3, 4)] == [True] * 3
    assert [out[1], out[2]] == [free[1], ""]


@pytest.mark.parametrize("count", [2, 4])
def test_a_prefix_file_of_another_length_is_an_error(
    settings: TranslateCommandOptions, tmp_path: Path, count: int
) -> None:
    (tmp_path / "prefixes").write_text("a\n" * count)
    with pytest.raises(DataError, match=rf"in has 3 lines but .*prefixes has {count}; line n"):
        run(replace(settings, prefix=tmp_path / "prefixes"), b"abc\nde\nf\n")


def start(program: Path, checkpoint: Path, *flags: str, **streams: Any) -> subprocess.Popen[bytes]:
    settings = ("--device", "cpu", "--max-length-offset", "3")
    command = [program, "translate", checkpoint, *settings, *flags]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, bufsize=0, **{**pipes, **streams})


def test_lines_of_a_pipe_are_answered_at_once_and_an_interrupt_is_quiet(
    forked_nmt: Path, tiny_checkpoint: Path
) -> None:
    with start(forked_nmt, tiny_checkpoint) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"abc\n", b"\n", b"hgfe\n"):
            process.stdin.write(line)
            answer = process.stdout.readline()
            assert answer.endswith(b"\n")
            assert bool(answer.strip()) == bool(line.strip())
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize(("ending", "code"), [(b"\x04", 0), (b"\x03", 130)])
def test_interactive(ending: bytes, code: int, forked_nmt: Path, tiny_checkpoint: Path) -> None:
    controller, terminal = pty.openpty()
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    # For Ctrl-C.
    login = {"start_new_session": True, "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)}
    with start(forked_nmt, tiny_checkpoint, "--interactive", **streams, **login) as process:
        os.close(terminal)
        shown = read_until(controller, b"> ")
        os.write(controller, b"abc [x]\n")
        shown += read_until(controller, b"> ", after=b"score")
        # Python loses a Ctrl-C that comes just before it waits for input.
        while process.returncode is None:
            os.write(controller, ending)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        assert process.returncode == code
        shown += os.read(controller, 1000)
    os.close(controller)
    assert b"Ctrl-D" in shown
    assert b"tokens in" in shown
    assert b"Traceback" not in shown
    if code:
        assert b"\r\nnmt: interrupted" in shown


@pytest.mark.parametrize("flags", [(), ("-q",)])
def test_lines_typed_without_interactive(
    flags: tuple[str, ...],
    forked_nmt: Path,
    make_checkpoint: Callable[..., Path],
    tmp_path: Path,
) -> None:
    model = make_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000001")
    controller, terminal = pty.openpty()
    with start(forked_nmt, tmp_path / "run", *flags, stdin=terminal) as process:
        os.write(controller, b"abc\n\x04")
        out, shown = process.communicate(timeout=PATIENCE)
    os.close(terminal)
    os.close(controller)
    assert out.count(b"\n") == 1
    assert [
        text in shown for text in (b"using " + bytes(model), b"Ctrl-D", b"translated 1 line in")
    ] == [not flags] * 3


def read_until(descriptor: int, wanted: bytes, after: bytes = b"") -> bytes:
    shown = b""
    deadline = time.monotonic() + PATIENCE
    while after not in shown or wanted not in shown[shown.index(after) :]:
        assert time.monotonic() < deadline, shown
        shown += os.read(descriptor, 1000)
    return shown


def test_progress_is_shown_unless_the_terminal_shows_translations(
    forked_nmt: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """A bar if stderr is a terminal and stdout a file. None if stdout is that terminal too."""
    for flags, expected in ((("--output", str(tmp_path / "out")), True), ((), False)):
        controller, terminal = pty.openpty()
        (tmp_path / "in").write_text("abc\n" * 50)
        flags = ("--input", str(tmp_path / "in"), "--read-ahead", "10", *flags)
        with start(
            forked_nmt,
            tiny_checkpoint,
            *flags,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
        ) as process:
            os.close(terminal)
            shown = read_until(controller, b"sentences/s")
            assert process.wait(PATIENCE) == 0
        os.close(controller)
        assert (
            b"50 lines translated" in shown
            and re.search(rb"100%\S* done, \S+ left", shown) is not None
        ) is expected


@pytest.mark.parametrize(
    ("closed", "code", "message"),
    [
        ("<&-", 1, b"nmt: standard input: cannot read this file: it is closed"),
        (">&-", 1, b"nmt: "),
        ("2>&-", 0, b""),
    ],
)
def test_closed_streams(
    tiny_checkpoint: Path, tmp_path: Path, closed: str, code: int, message: bytes
) -> None:
    (tmp_path / "in").write_text("abc\n")
    command = f'exec "$@" {closed}'
    given = [
        "sh",
        "-c",
        command,
        "sh",
        *NMT,
        str(tiny_checkpoint),
        *"--device cpu --max-length-offset 3".split(),
    ]
    with (tmp_path / "in").open() as text:
        done = subprocess.run(given, stdin=text, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == code
    assert message in done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stdout.count(b"\n") == (1 if closed == "2>&-" else 0)


PLUGIN = """
from nmt_cli import registry
registry.discover()
full = registry.find("attention", "full")
build = lambda *config, **values: full.build(*config, **values)
registry.register("attention", "mine", full.config)(build)
"""


def test_a_component_from_an_imported_module(
    settings: TranslateCommandOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        registry, "_components", {kind: dict(known) for kind, known in registry._components.items()}
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "plugin_of_translate.py").write_text(PLUGIN)
    copy = shutil.copytree(settings.checkpoints[0], tmp_path / "copy")
    config, sums = copy / "config.json", copy / "checksums.json"
    before = sha256(config.read_bytes()).hexdigest()
    config.write_text(config.read_text().replace('"full"', '"mine"'))
    sums.write_text(sums.read_text().replace(before, sha256(config.read_bytes()).hexdigest()))
    with pytest.raises(CheckpointError, match="mine"):
        run(replace(settings, checkpoints=(copy,)), b"abc")
    imported = replace(settings, checkpoints=(copy,), imports=("plugin_of_translate",))
    assert run(imported, b"abc") == run(settings, b"abc")
