"""The command line's own part: exit codes, light help, what is unknown, and flags that plug-ins bring."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from nmt_cli import __version__, registry
from nmt_cli.cli import imports_of, main, with_exit_codes
from nmt_cli.errors import CheckpointError, Interrupted, NmtError, UsageError

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def nmt(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `nmt ARGUMENTS` here: exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        code = end.value.code
        return (code if isinstance(code, int) else int(code is not None)), out, err

    return run


def test_help_lists_every_command(nmt: Run) -> None:
    code, out, _ = nmt("--help")
    assert code == 0
    for command in ("prepare", "train", "average", "translate", "score"):
        assert re.search(rf"│ {command} ", out)


def test_version(nmt: Run) -> None:
    assert nmt("--version")[:2] == (0, f"nmt {__version__}\n")


@pytest.mark.parametrize("command", ["prepare", "train", "average", "translate", "score"])
def test_a_command_alone_shows_its_help(nmt: Run, command: str) -> None:
    code, out, err = nmt(command)
    assert code in (0, 2)
    assert "Usage: nmt " + command in out + err


@pytest.mark.parametrize(
    ("arguments", "offered"),
    [
        (["trane"], "'train'"),
        (["train", "--d-modle", "3"], "--d-model"),
        (["average", "x", "--lats", "3"], "--last"),
        (["train", "--dry-run", "--vocab-size", "50", "--preset", "transfomer_base"], "transformer_base"),
        (["train", "--dry-run", "--vocab-size", "50", "--optimizer", "adm"], "adam"),
    ],
)
def test_what_is_unknown_is_told_the_nearest(nmt: Run, arguments: list[str], offered: str) -> None:
    code, out, err = nmt(*arguments)
    assert code == 2
    assert out == ""
    assert offered in err


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def run() -> NoReturn:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (NmtError("what to do"), 1, "nmt: what to do\n"),
        (CheckpointError("damaged"), 1, "nmt: damaged\n"),
        (UsageError("wrong flag"), 2, "nmt: wrong flag\n"),
        (Interrupted("saved", 15), 143, "nmt: saved\n"),
        (KeyboardInterrupt(), 130, "nmt: interrupted\n"),
        (FileNotFoundError(errno.ENOENT, "No such file", "x/y"), 1, "nmt: x/y: No such file\n"),
        (OSError(errno.ENOSPC, "No space left on device", "big"), 1, "nmt: big: No space left on device; make room on "
         "the disk and run the command again\n"),
        (OSError("odd"), 1, "nmt: odd\n"),
        (MemoryError(), 1, "nmt: out of memory; use smaller batches\n"),
    ],
)  # fmt: skip
def test_every_error_has_one_message_and_its_exit_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    with pytest.raises(SystemExit) as end:
        with_exit_codes(raising(error))
    assert end.value.code == code
    assert capsys.readouterr() == ("", message)


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        with_exit_codes(raising(ZeroDivisionError()))


def test_errors_of_a_command_reach_the_exit_code(nmt: Run, tmp_path: Path) -> None:
    code, out, err = nmt("train", tmp_path / "absent", "--out", tmp_path / "run")
    assert (code, out) == (1, "")
    assert f"{tmp_path / 'absent'}: no prepared data" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "modules"),
    [
        (["train"], []),
        (["train", "--import", "a", "--import=b.c", "--seed", "1"], ["a", "b.c"]),
        (["train", "--import"], [""]),
        (["train", "--important", "a"], []),
    ],
)
def test_modules_to_import(arguments: list[str], modules: list[str]) -> None:
    assert imports_of(arguments) == modules


PLUGIN = """
from dataclasses import dataclass
import torch
from nmt_cli.registry import option, register

@dataclass(frozen=True)
class DescentConfig:
    heavy_ball: float = option(0.25, "how heavy the ball is", minimum=0.0, maximum=0.9)

@register("optimizer", "descent", DescentConfig)
def descent(config, *, parameters):
    return torch.optim.SGD(parameters, lr=0.0, momentum=config.heavy_ball)
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module outside of the package; what it registers is forgotten after the test."""
    registry.discover()
    monkeypatch.setattr(registry, "_components", {kind: dict(own) for kind, own in registry._components.items()})
    (tmp_path / "descent_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "descent_plugin", raising=False)
    return "descent_plugin"


def test_a_plug_in_brings_its_own_flag(nmt: Run, plugin: str) -> None:
    given = ("train", "--import", plugin, "--optimizer", "descent", "--heavy-ball", "0.5")
    code, out, _ = nmt(*given, "--dry-run", "--json", "--vocab-size", 50, "--num-layers", 1)
    assert code == 0
    assert '"heavy_ball": 0.5' in out


def test_its_flag_is_in_the_help_and_its_bounds_hold(nmt: Run, plugin: str) -> None:
    assert "how heavy the ball is [default: 0.25]" in nmt("train", f"--import={plugin}", "--help")[1]
    given = ("train", "--import", plugin, "--optimizer", "descent", "--heavy-ball", "0.95")
    code, _, err = nmt(*given, "--dry-run", "--vocab-size", 50)
    assert code == 2
    assert "--heavy-ball must be at most 0.9, not 0.95" in err


def test_its_flag_needs_its_choice(nmt: Run, plugin: str) -> None:
    code, _, err = nmt("train", "--import", plugin, "--heavy-ball", "0.5", "--dry-run", "--vocab-size", 50)
    assert code == 2
    assert "--heavy-ball belongs to the optimizer descent, which is not selected; add --optimizer descent" in err


@pytest.mark.parametrize(
    "arguments", [["train", "--heavy-ball", "0.5"], ["train", "--import", "no_such_module_at_all"]]
)
def test_without_the_plug_in(nmt: Run, arguments: list[str]) -> None:
    code, _, err = nmt(*arguments)
    assert code == 2
    assert arguments[-1] in err or arguments[-2] in err


def test_a_module_may_be_given_to_prepare(nmt: Run, plugin: str, tmp_path: Path) -> None:
    """It brings nothing to it, but is imported."""
    code, _, err = nmt("prepare", "--import", plugin, "--train", tmp_path / "absent", "--out", tmp_path / "data")
    assert code in (1, 2)
    assert plugin not in err
    assert plugin in sys.modules


def test_main_takes_the_process_s_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["nmt", "--version"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code in (0, None)
    assert capsys.readouterr().out == f"nmt {__version__}\n"


def test_no_flag_is_written_twice(nmt: Run) -> None:
    """Each flag of `nmt train` stands once in its help."""
    _, out, _ = nmt("train", "--help")
    flags = re.findall(r"^│ [* ]?\s*(--[a-z0-9-]+)", out, re.MULTILINE)
    assert len(flags) > 40
    assert sorted(flags) == sorted(set(flags))
