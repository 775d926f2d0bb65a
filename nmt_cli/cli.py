"""The command line: the commands, their exit codes. The body of a command is imported when the command is called."""

from __future__ import annotations

import errno
import functools
import importlib
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from nmt_cli import __version__
from nmt_cli.errors import NmtError
from nmt_cli.streams import silence, sound_streams

HELP = '"Attention Is All You Need", complete: prepare text, train, average, translate, score.'
COMMANDS = {
    "prepare": "Turn raw text into a memory-mapped corpus of subword ids.",
    "train": "Train a model, or resume a run.",
    "average": "Average checkpoints (section 6.1).",
    "translate": "Translate lines from standard input to standard output.",
    "score": "Score translations against references: BLEU, chrF2, TER.",
}
"""Each is a module of `nmt_cli.commands` with a `command`; the entry points `nmt.commands` name further ones."""
IMPORT = "--import"


def main(arguments: Sequence[str] | None = None) -> None:
    """The `nmt` command. Exit codes: 0; 1 for data and files; 2 for wrong usage; 128 + n for signal n."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a broken connection is told by us, in words
    given = list(sys.argv[1:] if arguments is None else arguments)
    with sound_streams():
        with_exit_codes(lambda: application(given)(given, prog_name="nmt"))


def application(arguments: Sequence[str]) -> typer.Typer:
    """The commands. Only the one that `arguments` call is imported, with the flags of its components."""
    called = next((argument for argument in arguments if not argument.startswith("-")), "")
    app = typer.Typer(
        help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich"
    )
    app.callback()(common)
    for name, summary in (COMMANDS | further_commands()).items():
        function: Callable[..., None] = common
        epilog = None
        if name == called:
            from nmt_cli.flags import function_of

            command = load(name)
            function = guarded(function_of(command, imports_of(arguments)))
            epilog = "\n\n".join(["Examples:", *command.examples]) if command.examples else None
        app.command(name, help=summary, no_args_is_help=True, epilog=epilog)(function)
    return app


def load(name: str) -> Any:
    """The `Command` called `name`."""
    if name in COMMANDS:
        return importlib.import_module(f"nmt_cli.commands.{name}").command
    return _entry_points()[name].load()


def further_commands() -> dict[str, str]:
    """The commands that entry points name, with a line about each."""
    return {name: (inspect.getdoc(load(name).options) or "").split("\n")[0] for name in _entry_points()}


def _entry_points() -> Mapping[str, importlib.metadata.EntryPoint]:
    return {entry.name: entry for entry in importlib.metadata.entry_points(group="nmt.commands")}


def imports_of(arguments: Sequence[str]) -> list[str]:
    """The modules of `--import MODULE`, which must be known before the flags that they bring can be read."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=True)
    return [after for argument, after in pairs if argument == IMPORT] + [
        argument.removeprefix(f"{IMPORT}=") for argument in arguments if argument.startswith(f"{IMPORT}=")
    ]


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with our exit codes, before the command-line library can meet its errors."""

    @functools.wraps(command)
    def run(*args: Any, **values: Any) -> None:
        with_exit_codes(lambda: command(*args, **values))

    return run


def with_exit_codes(run: Callable[[], Any]) -> None:
    """Runs, and turns every error that a user can meet into one message on stderr and the right exit code."""
    try:
        run()
        sys.stdout.flush()
    except NmtError as error:
        leave(str(error), error.exit_code)
    except KeyboardInterrupt:
        leave("interrupted", 130)
    except BrokenPipeError:
        silence(sys.stdout)
        sys.exit(141)
    except OSError as error:
        if error.errno == errno.EBADF:
            silence(sys.stdout)
            leave("standard output is closed: there is nowhere for the results", 1)
        place = f"{error.filename}: " if error.filename else ""
        advice = "; make room on the disk and run the command again" if error.errno == errno.ENOSPC else ""
        leave(f"{place}{error.strerror or error}{advice}", 1)
    except MemoryError:
        leave("out of memory; use smaller batches", 1)


def leave(message: str, code: int) -> None:
    """Ends the process with a message for the user."""
    print(f"nmt: {message}", file=sys.stderr)
    sys.exit(code)


def print_version(wanted: bool) -> None:
    """Prints the version and ends, where it is wanted."""
    if wanted:
        print(f"nmt {__version__}")
        raise typer.Exit


def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """The flags of `nmt` itself."""


if __name__ == "__main__":
    main()
