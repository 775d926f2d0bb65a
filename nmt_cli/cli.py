"""The `nmt` command: its subcommands and exit codes.

A subcommand's module is imported when it is called.
"""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import operator
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt_cli import __version__
from nmt_cli.errors import NmtError
from nmt_cli.registry import docstring, entry_points
from nmt_cli.streams import safe_streams, say

if TYPE_CHECKING:
    from nmt_cli.flags import Command

HELP = '"Attention Is All You Need", complete: prepare text, train, average, translate, score.'
EPILOG = """\b
Examples:
    nmt recipes
    nmt prepare --source-lang en --target-lang de \\
        --train corpus/train --valid corpus/valid --out data
    nmt train data --out run --preset multi30k
    nmt translate run/best < test.en > test.translated
    nmt score test.translated --ref test.de

`nmt COMMAND --help` lists the flags of a command. The documentation is in README.md and docs/ of \
the source."""
COMMANDS = ("prepare", "train", "average", "translate", "score")
"""Each is the `command` of a module of `nmt_cli.commands`."""
# The base class of typer's usage errors.
WRONG_COMMAND_LINE: type[Any] = typer.BadParameter.__mro__[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `nmt`.

    Exit codes: 0, 1 for data and files, 2 for wrong usage, and 128 + n for signal n.
    """
    # Importing torch makes many objects that stay: searching them takes 0.1 s.
    gc.set_threshold(200_000, 30, 30)
    # With torch loaded, Python's last search for garbage takes half a second.
    atexit.register(gc.freeze)
    # Our own message reports a broken connection.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    if "OMP_WAIT_POLICY" not in os.environ:
        # Where another program has a core, a thread must soon sleep, not spin.
        os.environ.setdefault("GOMP_SPINCOUNT", "50000")
    words = list(sys.argv[1:] if arguments is None else arguments)
    with safe_streams(), exit_codes():
        end_at_signals()
        sys.exit(application(words)(words, prog_name="nmt", standalone_mode=False) or 0)


def application(words: Sequence[str]) -> typer.Typer:
    """Return the commands. Only the one that `words` call is imported and has flags."""
    completes = "_NMT_COMPLETE" in os.environ
    if completes:
        words = completed_words()
    help_names = ["--help", "-h"]
    first = next((word for word in words if word != "--"), "--help")
    asks_version = first == "--version"
    names = [] if asks_version else command_names()
    is_called = first in names
    app = typer.Typer(
        help=HELP,
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"max_content_width": 120, "help_option_names": help_names},
        # typer imports pydantic for its flags of completion, so they are there only if needed.
        add_completion=completes or not (is_called or asks_version),
    )
    app.callback(add_help_option=not is_called)(common)
    if is_called:
        # `nmt --help` does not need it.
        from nmt_cli.flags import CommandWithSections, epilog, function_of

        command = load_command(first)
        add = app.command(
            first,
            cls=CommandWithSections,
            no_args_is_help=command.needs_arguments,
            epilog=epilog(command),
        )
        add(exit_codes()(function_of(command, words)))
        return app
    for name in names:
        about = line_about(name) if first in help_names else None
        # It is listed, and never called.
        app.command(name, short_help=about)(lambda: None)
    return app


def command_names() -> list[str]:
    """Return the names of all commands. Entry points of the group `nmt.commands` add some."""
    return [*COMMANDS, *sorted(entry_points("nmt.commands").names)]


def load_command(name: str) -> Command:
    module, attribute = place_of(name)
    command: Command = operator.attrgetter(attribute)(importlib.import_module(module))
    return command


def place_of(name: str) -> tuple[str, str]:
    """Return the module of a command, and its name there."""
    if name in COMMANDS:
        return f"nmt_cli.commands.{name}", "command"
    entry = entry_points("nmt.commands")[name]
    return entry.module, entry.attr


def line_about(name: str) -> str:
    """Return the line of `nmt --help` about a command: the beginning of its module's docstring."""
    module, _ = place_of(name)
    text = docstring(module)  # without an import, which could take a second
    match = re.match(rf"`nmt {name}`: (.+?)\.(?:\s|$)", text)
    about = match[1] if match else str(load_command(name).options.__doc__)
    return about[:1].upper() + about[1:]


def completed_words() -> list[str]:
    """Return the words before the one that the shell wants completed."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS")  # of zsh and fish
    if not line:
        line = os.environ.get("COMP_WORDS", "")  # of bash
    return line.split()[1:-1]


def end_at_signals() -> None:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does: it deletes its unfinished files."""

    def end(number: int, _frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, end)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn user errors into a message on stderr and an exit code."""
    try:
        yield
        sys.stdout.flush()
    except NmtError as error:
        leave(str(error), error.exit_code)
    except WRONG_COMMAND_LINE as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            sys.exit(2)
        leave(usage_message(error), 2)
    except KeyboardInterrupt:
        leave("interrupted", 130)
    except BrokenPipeError:
        discard_output()
        # 128 + SIGPIPE, as other programs end when their reader is gone.
        sys.exit(141)
    except OSError as error:
        if error.errno == errno.EBADF and error.filename in (None, "standard output"):
            discard_output()
            leave("standard input or output is closed", 1)
        leave(system_message(error), 1)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        leave("out of memory; use smaller batches", 1)


def out_of_memory(error: MemoryError | RuntimeError) -> bool:
    if isinstance(error, MemoryError):  # there may be no memory to import torch
        return True
    from nmt_cli.device import is_out_of_memory

    return is_out_of_memory(error)


def discard_output() -> None:
    """Send the rest of standard output to /dev/null, because Python writes it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def system_message(error: OSError) -> str:
    """Return the message about an error of the operating system."""
    message = str(error.strerror or error)
    if error.filename:
        message = f"{error.filename}: {message}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message += "; free some space and run the command again"
    return message


def usage_message(error: Any) -> str:
    """Return typer's message in the form of ours."""
    text: str = error.format_message()
    if "unexpected extra argument" in text:
        text += "; a flag with several values is repeated before each of them"
    message = text[0].lower() + text[1:].rstrip(".")
    if error.ctx:
        message += f"\n`{error.ctx.command_path} --help` lists the flags."
    return message


def leave(message: str, code: int) -> None:
    say(f"nmt: {message}")
    sys.exit(code)


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"nmt {__version__}")
        raise typer.Exit


def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """The flags of `nmt` itself."""


if __name__ == "__main__":
    main()
