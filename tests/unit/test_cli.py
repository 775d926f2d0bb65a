"""The command line's own part: exit codes, help, unknown flags, completion, plug-ins' flags."""

from __future__ import annotations

import errno
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt_cli import __version__, registry
from nmt_cli.cli import COMMANDS, command_names, exit_codes, load_command, main, place_of
from nmt_cli.errors import CheckpointError, Interrupted, UsageError

Nmt = Callable[..., tuple[int, str, str]]


def test_help_lists_every_command(nmt: Nmt) -> None:
    code, out, _ = nmt("--help")
    assert code == 0
    shown = set(re.findall(r"^  ([a-z-]+)", out.partition("Commands:")[2], re.MULTILINE))
    assert shown == {
        *COMMANDS,
        "attention",
        "convert-command",
        "doctor",
        "export",
        "import",
        "recipes",
        "report",
        "rerank",
        "score-targets",
        "score-trees",
        "serve",
        "tune",
    }


def test_the_overview_fits_a_terminal(nmt: Nmt, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole line for each command, examples, and where the documentation is."""
    monkeypatch.setenv("COLUMNS", "80")
    out = nmt("--help")[1]
    assert max(map(len, out.split("\n"))) <= 80
    commands, _, rest = out.partition("Commands:\n")[2].partition("Examples:\n")
    lines = dict(re.findall(r"^  ([a-z-]+) +([A-Z].*[^.])$", commands, re.MULTILINE))
    assert (len(lines), commands.strip().count("\n")) == (
        len(command_names()),
        len(command_names()) - 1,
    )
    assert lines["average"] == "The mean of several checkpoints (section 6.1)"
    assert rest.count("nmt ") >= 4
    assert "docs/" in rest


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_the_overview_imports_no_command(flag: str) -> None:
    modules = ["nmt_cli.flags", *(place_of(name)[0] for name in command_names())]
    code = (
        f"import sys; from nmt_cli.cli import main\ntry: main(['{flag}'])\nfinally: "
        "print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0
    assert "nmt_cli.cli" in run.stdout
    assert set(modules).isdisjoint(run.stdout.split())


def test_version_and_the_arguments_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["nmt", "--version"])
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, capsys.readouterr().out) == (0, f"nmt {__version__}\n")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii:surrogateescape"])
def test_a_standard_output_that_is_not_utf_8(encoding: str, tmp_path: Path) -> None:
    """Latin-1 has no ellipsis."""
    module = "from nmt_cli.presets import preset\npreset('more', 'and so on\u2026')\n"
    (tmp_path / "more_presets.py").write_text(module, encoding="utf-8")
    command = [sys.executable, *"-m nmt_cli train --import more_presets --list-presets".split()]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(tmp_path)}
    shown = subprocess.run(command, env=environment, check=True, capture_output=True)
    assert b"\\u2026" in shown.stdout
    assert shown.stderr == b""


@pytest.mark.skipif(sys.platform != "linux", reason="PyTorch has OpenMP of GCC on Linux")
@pytest.mark.parametrize(("choice", "expected"), [({}, "50000"), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_threads_sleep_soon(choice: dict[str, str], expected: str) -> None:
    """As OpenMP itself shows it, when PyTorch loads it: set later, it would have no effect."""
    set_to_sleep = {
        name: value
        for name, value in os.environ.items()
        if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    command = [sys.executable, "-m", "nmt_cli", "train", "--dry-run", "--vocab-size", "9"]
    shown = subprocess.run(
        command,
        env={**set_to_sleep, **choice, "OMP_DISPLAY_ENV": "verbose"},
        check=True,
        capture_output=True,
        text=True,
    ).stderr
    assert re.findall("GOMP_SPINCOUNT = '(.*)'", shown) == [expected]


@pytest.mark.parametrize("command", command_names())
def test_help(nmt: Nmt, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """It fits the terminal, shows each flag once and each type in our words, and has examples."""
    code, out, _ = nmt(command, "--help")
    assert nmt(command, "-h")[:2] == (code, out)
    assert code == 0
    assert not load_command(command).needs_arguments or nmt(command)[2] == out
    monkeypatch.setenv("COLUMNS", "80")
    shown, _, examples = nmt(command, "--help")[1].partition("Examples:\n")
    assert max(map(len, shown.split("\n"))) <= 80
    assert max(map(len, examples.split("\n"))) <= 78
    assert not re.search(r"\[default[^]]*\]\.|[^.] \[default", re.sub(r"\s+", " ", shown))
    assert len(re.findall(rf"nmt {command}\s", examples)) >= 2
    flags = re.findall(r"^  (?:-\w, )?(--[a-z0-9-]+)", shown, re.MULTILINE)
    assert "--help" in flags
    assert sorted(flags) == sorted(set(flags))
    assert not re.search(r"<(?!bt>|2de>|V>|PST>)\w+|INTEGER|TEXT|(?<!-)range", shown)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("trane", "train"),
        ("train --d-modle 3", "--d-model"),
        ("train --label_smoothing 0.1", "use --label-smoothing"),
        ("train --d-model x", "--d-model must be an integer, not 'x'"),
        ("train --dropout=x", "--dropout must be a number, not 'x'"),
        ("train --lr=0.1", "use --peak-learning-rate"),
        (
            "train --learning-rate 1 --dry-run --vocab-size 50",
            "peak x sqrt(d_model x warmup steps)",
        ),
        (
            "train --max_tokens 4096",
            "--batch-tokens, the tokens of a whole update: those of a device x accumulation x "
            "devices",
        ),
        ("train --source-lang en", "nmt prepare"),
        ("train --smoothing 0.1", "--label-smoothing"),
        ("train -train_steps 4096", "--max-steps"),
        ("translate run -src test.en", "--input"),
        ("average x --lats 3", "--last"),
        ("average x --last", "--last"),
        ("train --dry-run --vocab-size 50 --preset transfomer_base", "transformer_base"),
        (
            "train --dry-run --vocab-size 50 --optimizer adm",
            "adamw? Known: adam, adamw, muon, sgd.",
        ),
        ("train --model gntm --help", "gnmt? Known:"),
        ("prepare --task parsin -h", "parsing"),
        ("prepare --train a b --out y", "a flag with several values is repeated"),
    ],
)
def test_the_message_for_an_unknown_name_offers_a_known_one(
    nmt: Nmt, line: str, offered: str
) -> None:
    code, out, err = nmt(*line.split())
    assert (code, out, err[:5]) == (2, "", "nmt: ")
    assert re.search(rf"{re.escape(offered)}(?!\w)", err)
    assert not re.search(r"--\w+\.\w|--import", err)


def test_a_name_that_is_like_no_other_is_not_compared(nmt: Nmt) -> None:
    code, _, err = nmt("train", "--foo-bar", "3")
    assert (code, "did you mean" in err) == (2, False)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (CheckpointError("reason"), 1, "reason"),
        (UsageError("reason"), 2, "reason"),
        (Interrupted("reason", 15), 143, "reason"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            OSError(errno.ENOSPC, "No space left on device", "big"),
            1,
            "big: No space left on device; ",
        ),
        (OSError("odd"), 1, "odd"),
        (MemoryError(), 1, "out of memory"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
            1,
            "out of memory",
        ),
    ],
)
def test_every_error_has_one_message_and_its_exit_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, words: str
) -> None:
    with pytest.raises(SystemExit) as end, exit_codes():
        raise error
    out, err = capsys.readouterr()
    assert (end.value.code, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(f"nmt: {words}")


@pytest.mark.parametrize("bug", [ZeroDivisionError, RuntimeError])
def test_a_bug_is_not_hidden(bug: type[Exception]) -> None:
    with pytest.raises(bug), exit_codes():
        raise bug


@pytest.mark.parametrize(
    ("line", "shown", "hidden"),
    [
        ("train", "--d-ff N Width of the feed-forward layers. [default: 2048]", "--init-range"),
        ("train --model gnmt", "--init-range X", "--d-ff"),
        ("train --preset gnmt_small", "--model NAME Selected: gnmt. Others:", "--d-ff"),
        ("train --config gnmt.toml", "[default: 0.25]", "--d-ff"),
        (
            "train --preset bytenet_small --model=gnmt",
            "--schedule NAME Selected: constant.",
            "--d-ff",
        ),
        ("prepare --task parsing", "--linearisation", "--source-lang NAME"),
    ],
)
def test_the_help_shows_what_is_selected(
    nmt: Nmt, line: str, shown: str, hidden: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each flag has the help and the default of its own component, preset or file."""
    monkeypatch.chdir(tmp_path)
    Path("gnmt.toml").write_text("[model]\nname = 'gnmt'\ndropout = 0.25\n")
    words = " ".join(nmt(*line.split(), "--help")[1].split())
    assert shown in words
    assert f" {hidden} " not in words


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("nmt tra", ["train", "translate"]),
        ("nmt train --max-s", ["--max-steps"]),
        ("nmt translate run --be", ["--beam"]),
        ("nmt train --norm p", ["post", "pre"]),
        ("nmt train --model gnmt --init", ["--init-from", "--init-range"]),
        ("nmt train --optimizer ", ["adam", "adamw", "muon", "sgd"]),
        ("nmt train --preset q", ["quickstart"]),
        ("nmt score a --metric ch", ["chrf", "chrf++"]),
        ("nmt score a --metric exa", ["exact"]),
        ("nmt train --import no_such_mod", []),
    ],
)
def test_bash_completes_commands_flags_and_values(
    nmt: Nmt, monkeypatch: pytest.MonkeyPatch, line: str, offered: list[str]
) -> None:
    for name, value in {
        "COMP_WORDS": line,
        "COMP_CWORD": line.count(" "),
        "_NMT_COMPLETE": "complete_bash",
    }.items():
        monkeypatch.setenv(name, str(value))
    code, out, err = nmt()
    assert (code, out.split(), err) == (0, offered, "")


PLUGIN = """
from dataclasses import dataclass
import torch
from nmt_cli.registry import option, register

@dataclass(frozen=True)
class DescentConfig:
    heavy_ball: float = option(0.25, "Momentum.", minimum=0.0, maximum=0.9)
    dropout: float = option(0.5, "Dropout of gradients.")
    out: int = option(3, "A field with the name of a flag of the command.")
    lr: float = option(1.0, "Learning rate.")

@register("optimizer", "descent", DescentConfig)
def descent(config, *, parameters):
    return torch.optim.SGD(parameters, lr=0.0, momentum=config.heavy_ball)
"""
DRY = ("--dry-run", "--json", "--vocab-size", 50, "--num-layers", 1)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Return flags that import and select an optimizer outside of the package.

    Unregister it after the test.
    """
    registry.discover()
    monkeypatch.setattr(
        registry,
        "_components",
        {kind: dict(entries) for kind, entries in registry._components.items()},
    )
    (tmp_path / "descent_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "descent_plugin", raising=False)
    importlib.invalidate_caches()
    return ("--import", "descent_plugin", "--optimizer", "descent")


def test_a_plug_in_brings_its_own_flags(nmt: Nmt, plugin: tuple[str, ...]) -> None:
    code, out, _ = nmt("train", *plugin, "--heavy-ball", "0.5", "--lr", "2", *DRY)
    assert code == 0
    assert '"heavy_ball": 0.5' in out
    assert '"lr": 2.0' in out
    assert "--heavy-ball X" in nmt("train", *plugin, "--help")[1]
    code, _, err = nmt("train", *plugin, "--heavy-ball", "0.95", *DRY)
    assert (code, "--heavy-ball must be at most 0.9" in err) == (2, True)


def test_a_field_of_two_components_needs_its_section(nmt: Nmt, plugin: tuple[str, ...]) -> None:
    code, _, err = nmt("train", *plugin, "--dropout", "0.3", *DRY)
    assert code == 2
    assert "--model.dropout" in err
    assert "--optimizer.dropout" in err
    code, out, _ = nmt(
        "train",
        *plugin,
        "--preset",
        "multi30k",
        "--optimizer.dropout",
        0.7,
        "--optimizer.out",
        7,
        *DRY,
    )
    assert (code, out.count('"dropout": 0.3'), out.count('"dropout": 0.7'), '"out": 7' in out) == (
        0,
        1,
        1,
        True,
    )
    code, out, _ = nmt(
        "train", "--import", "descent_plugin", "--dropout", "0.3", "--optimizer.beta1", "0.5", *DRY
    )
    assert (code, out.count('"dropout": 0.3'), out.count('"beta1": 0.5')) == (0, 1, 1)


def test_a_flag_of_a_component_needs_its_choice(nmt: Nmt, plugin: tuple[str, ...]) -> None:
    for name in ("--heavy-ball", "--optimizer.heavy-ball"):
        code, _, err = nmt("train", "--import", "descent_plugin", name, "0.5", *DRY)
        assert (code, "--optimizer descent" in err) == (2, True)


def test_prepare_imports_modules_too(nmt: Nmt, plugin: tuple[str, ...], tmp_path: Path) -> None:
    code, _, err = nmt(
        "prepare", *plugin[:2], "--train", tmp_path / "absent", "--out", tmp_path / "data"
    )
    assert (code, "--source-lang" in err) == (2, True)
    assert "descent_plugin" in sys.modules
