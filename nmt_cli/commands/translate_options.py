"""The flags of the commands that use a model, and checks of the flags of `nmt translate`."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli.commands.translate_formats import FORMATS
from nmt_cli.data import parallel
from nmt_cli.decoding import engine as engines
from nmt_cli.decoding.options import DTYPES, TranslateOptions
from nmt_cli.errors import UsageError, rank_and_size
from nmt_cli.flags import FromFile, device_option, import_option
from nmt_cli.registry import argument, group, option
from nmt_cli.streams import say

if TYPE_CHECKING:
    from nmt_cli.decoding.translator import Translator


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(FromFile):
    """Which model, and where it computes."""

    checkpoints: tuple[Path, ...] = argument(
        "CHECKPOINT...", "A checkpoint, or a run (its newest checkpoint). Several are an ensemble."
    )
    device: str = device_option()
    imports: tuple[str, ...] = import_option()


@dataclass(frozen=True, kw_only=True)
class EngineOptions(CheckpointOptions):
    """How a search computes."""

    dtype: str = option(
        "auto",
        "Arithmetic of matrix products. auto is float32 on a CPU, and on GPUs bfloat16 or "
        "float16. int8 and, on CPUs that have it, bfloat16 are faster, and change some outputs.",
        choices=DTYPES,
    )
    workers: int | None = option(
        None,
        "Processes on a CPU. Outputs depend on it by rounding only. [default: number of cores, or "
        "OMP_NUM_THREADS]",
        minimum=1,
        maximum=parallel.MOST,
    )
    engine: str = option(
        engines.OWN,
        "Program that searches. Another one than nmt has its own limits.",
        choices=engines.names(),
    )

    def translator(
        self, options: TranslateOptions, *, scores: bool = True, say: Callable[[str], None]
    ) -> Translator:
        """Import the modules of --import, and load the checkpoints."""
        from nmt_cli import registry
        from nmt_cli.decoding.loading import load_translator

        registry.discover(self.imports)
        return load_translator(
            self.checkpoints,
            options,
            device=self.device,
            dtype=self.dtype,
            workers=self.workers,
            engine=self.engine,
            scores=scores,
            say=say,
        )


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Which lines are read, and where the results go."""

    input: Path | None = option(
        None, "Read this file instead of standard input.", names=("--input", "-i")
    )
    output: Path | None = option(
        None,
        "Write this file instead of standard output, compressed if it ends in .gz, .xz, .bz2 or "
        ".zst. It appears when it is complete.",
        names=("--output", "-o"),
    )
    quiet: bool = option(
        False, "No progress, summary or warnings about lines on stderr.", names=("--quiet", "-q")
    )

    @property
    def to_terminal(self) -> bool:
        """Whether the results appear on a terminal."""
        return self.output is None and sys.stdout.isatty()

    def note(self, message: str) -> None:
        """Print a message on standard error, unless they are unwanted."""
        if not self.quiet:
            say(message)

    @property
    def shows_progress(self) -> bool:
        """Whether standard error is a terminal of its own."""
        return not self.quiet and not self.to_terminal and sys.stderr.isatty()


@dataclass(frozen=True, kw_only=True)
class TranslateCommandOptions(FileOptions, EngineOptions):
    """Translate lines from standard input to standard output, one line out for each line in."""

    format: str | None = option(
        None,
        "text: plain lines. tsv: line number, score, text. moses: Moses' n-best lists. json: an "
        "object for each line of input. [default: text, or tsv with --nbest]",
        choices=tuple(FORMATS),
    )
    prefix: Path | None = option(None, "Begin each output with the text of its line in this file.")
    interactive: bool = option(False, "Translate lines as they are typed.")
    test: bool = option(
        False,
        "Translate the test text that was prepared with the data of the first CHECKPOINT's run.",
    )
    translation: TranslateOptions = group("batches and limits", TranslateOptions)


def with_test_text(options: TranslateCommandOptions) -> TranslateCommandOptions:
    """Return options whose input is the test text, if --test is given."""
    if not options.test:
        return options
    if options.input or options.interactive:
        raise UsageError("--test cannot be used with --input or --interactive")
    # It imports numpy, which --help does not need.
    from nmt_cli.commands.held_out import file_of_test_text

    file = file_of_test_text(options.checkpoints[0], "source", "--test", "--input")
    return replace(options, input=file)


def check(options: TranslateCommandOptions) -> None:
    """Raise UsageError for flags and files that do not fit together."""
    check_checkpoints(options)
    if options.prefix and options.engine != engines.OWN:
        raise UsageError(f"--prefix cannot be used with --engine {options.engine}")
    if options.interactive:
        files = options.input or options.output or options.translation.files or options.prefix
        if files or options.workers or options.format:
            raise UsageError(
                "--interactive cannot be used with other inputs and outputs, --workers or --format"
            )
        if not sys.stdin.isatty():
            raise UsageError(
                "--interactive needs a terminal. Files and pipes are translated without it"
            )
    check_output(options.output, options.input, options.prefix)
    for file in options.translation.files:
        check_output(file, options.input, options.prefix)
        if _is_same(options.output, file):
            raise UsageError(f"{file} is also the output: choose another name")


def _is_same(output: Path | None, file: Path) -> bool:
    """Whether the output is this file, also by another name, or before it is written."""
    if output is not None and os.path.realpath(output) == os.path.realpath(file):
        return True
    identity = _identity(output or sys.stdout.fileno())
    return identity is not None and identity == _identity(file)


def check_checkpoints(options: CheckpointOptions) -> None:
    """Raise UsageError for a text file in place of a checkpoint."""
    for path in options.checkpoints:
        if path.is_file() and path.suffix != ".safetensors":
            raise UsageError(
                f"{path} is a file, not a checkpoint; to translate it, give --input {path} or < "
                f"{path}"
            )


def check_output(output: Path | None, source: Path | None, other: Path | None = None) -> None:
    """Raise UsageError for an output that is an input or a file of nmt, or in no directory.

    Args:
        output: None is standard output.
        source: None is standard input.
        other: another input, if there is one.
    """
    _, processes = rank_and_size()
    if processes > 1 and not (source and source.is_file() and output):
        raise UsageError(
            "several processes share the lines of a file: give --input FILE and --output FILE"
        )
    inputs = [_identity(source or sys.stdin.fileno())]
    if other is not None:
        inputs.append(_identity(other))
    identity = _identity(output or sys.stdout.fileno())
    if identity is not None and identity in inputs:
        raise UsageError(f"{output or 'standard output'} is also an input: choose another name")
    if output is None:
        return
    if not output.parent.is_dir():
        raise UsageError(f"{output}: there is no directory {output.parent}")
    if output.is_file() and _is_ours(output.resolve()):
        raise UsageError(
            f"{output} is a file of a checkpoint, a run or prepared data: choose another name"
        )


def _is_ours(path: Path) -> bool:
    """Whether this is a file of a checkpoint, a run or prepared data."""
    if any((folder / "checksums.json").exists() for folder in path.parents[:2]):
        return True
    names = (
        r"(config|manifest|summary)\.json|metrics\.jsonl|(train|valid|test)\.(source|target)\..*"
    )
    if not re.fullmatch(names, path.name):
        return False
    return any(path.with_name(name).exists() for name in ("manifest.json", "metrics.jsonl"))


def _identity(place: Path | int) -> tuple[int, int] | None:
    """Return the device and the inode of a regular file, or None if it is not one."""
    try:
        status = os.stat(place)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_dev, status.st_ino
