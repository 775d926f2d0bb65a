"""The flags of the commands that use a model, and whether those of `nmt translate` fit together."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli.commands.translate_formats import FORMATS
from nmt_cli.commands.translate_streams import shard_numbers
from nmt_cli.data import parallel
from nmt_cli.decoding import engine as engines
from nmt_cli.decoding.options import DTYPES, TranslateOptions
from nmt_cli.errors import UsageError
from nmt_cli.flags import IMPORTS_HELP
from nmt_cli.registry import argument, group, option

if TYPE_CHECKING:
    from nmt_cli.decoding.translator import Translator


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """Which model, and where it computes."""

    checkpoints: tuple[Path, ...] = argument(
        "CHECKPOINT...", "A checkpoint, or a run (its newest checkpoint). Several are an ensemble."
    )
    device: str = option("auto", "Device to use: auto, cpu, cuda or cuda:N.")
    imports: tuple[str, ...] = option((), IMPORTS_HELP, metavar="MODULE", names=("--import",))


@dataclass(frozen=True, kw_only=True)
class EngineOptions(CheckpointOptions):
    """How a search computes."""

    dtype: str = option(
        "auto",
        "Arithmetic of matrix products. auto is float32. int8 and, on CPUs that have it, bfloat16 are faster, and "
        "change some outputs.",
        choices=DTYPES,
    )
    workers: int | None = option(
        None,
        "Processes on a CPU. Outputs do not depend on it. [default: number of cores, or OMP_NUM_THREADS]",
        minimum=1,
        maximum=parallel.MOST,
    )
    dictionary: Path | None = option(
        None, "With --replace-unknown: translations of source words, a line each: word, tab, translation."
    )
    engine: str = option(
        engines.OWN,
        "Program that searches. Another one than nmt has its own limits.",
        choices=engines.names(),
    )

    def translator(self, options: TranslateOptions, *, scores: bool = True, say: Callable[[str], None]) -> Translator:
        """Load the checkpoints.

        Raises: as `load_translator`, and
            UsageError: there is a dictionary that is not used, or a module of --import cannot be imported.
        """
        from nmt_cli import registry
        from nmt_cli.decoding.loading import load_translator

        if self.dictionary and not options.replace_unknown:
            raise UsageError("--dictionary is for unknown words and needs --replace-unknown")
        registry.discover(self.imports)
        return load_translator(
            self.checkpoints,
            options,
            device=self.device,
            dtype=self.dtype,
            workers=self.workers,
            dictionary=self.dictionary,
            engine=self.engine,
            scores=scores,
            say=say,
        )


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Which lines are read, and where the results go."""

    input: Path | None = option(None, "Read this file instead of standard input.", names=("--input", "-i"))
    output: Path | None = option(
        None,
        "Write this file instead of standard output, compressed if it ends in .gz, .xz or .bz2.",
        names=("--output", "-o"),
    )
    quiet: bool = option(False, "No progress, summary or warnings about lines on stderr.", names=("--quiet", "-q"))

    @property
    def to_terminal(self) -> bool:
        """Whether the results appear on a terminal."""
        return self.output is None and sys.stdout.isatty()

    @property
    def shows_progress(self) -> bool:
        """Whether standard error is a terminal of its own."""
        return not self.quiet and not self.to_terminal and sys.stderr.isatty()


@dataclass(frozen=True, kw_only=True)
class TranslateCommandOptions(FileOptions, EngineOptions):
    """Translate lines from standard input to standard output, one line out for each line in."""

    shard: str | None = option(
        None,
        "Translate part I (from 1) of N of --input. The outputs of 1/N to N/N, joined, are the whole.",
        metavar="I/N",
    )
    format: str | None = option(
        None,
        "text: plain lines. tsv: line number, score, text. moses: Moses' n-best lists. json: an object for each line "
        "of input. [default: text, or tsv with --nbest]",
        choices=tuple(FORMATS),
    )
    prefix: Path | None = option(None, "Begin each output with the text of its line in this file.")
    interactive: bool = option(False, "Translate lines as they are typed.")
    greedy: bool = option(False, "Same as --beam 1.")
    scores: bool = option(False, "In --format text, write the score and a tab before each output.")
    attention: Path | None = option(None, "Also write a page that shows every head's attention.", metavar="FILE.html")
    translation: TranslateOptions = group("batches and limits", TranslateOptions)


def check(options: TranslateCommandOptions) -> None:
    """Raise UsageError for flags and files that do not fit together."""
    check_checkpoints(options)
    search, sampling = options.translation.search, options.translation.sampling
    if options.greedy and (search.beam not in (None, 1) or sampling.sample):
        raise UsageError(f"--greedy cannot be used with {'--sample' if sampling.sample else '--beam'}")
    if options.translation.split_sentences and (options.prefix or options.attention):
        which = "--prefix" if options.prefix else "--attention"
        raise UsageError(f"--split-sentences cannot be used with {which}: it joins the outputs of sentences")
    if options.prefix and options.engine != engines.OWN:
        raise UsageError(f"--prefix cannot be used with --engine {options.engine}")
    if options.shard is not None:
        shard_numbers(options.shard)
        if options.input is None:
            raise UsageError("--shard needs --input FILE: its lines are counted before they are translated")
    if options.interactive:
        _check_interactive(options)
        return
    if options.attention and len(options.checkpoints) > 1:
        raise UsageError("--attention shows one model, not an ensemble: give one checkpoint")
    if options.attention and options.output and options.attention.resolve() == options.output.resolve():
        raise UsageError(f"--attention and --output are the same file: {options.output}")
    outputs = {"--output": options.output or sys.stdout.fileno(), "--attention": options.attention}
    check_files(
        outputs, {"the input itself": options.input or sys.stdin.fileno(), "the file of --prefix": options.prefix}
    )


def _check_interactive(options: TranslateCommandOptions) -> None:
    """Raise UsageError for a flag that does not fit --interactive, and if there is no terminal."""
    if options.input or options.output or options.attention or options.prefix:
        raise UsageError("--interactive cannot be used with --input, --output, --prefix or --attention")
    if options.workers:
        raise UsageError("--interactive cannot be used with --workers: it translates a line at a time")
    if options.format:
        raise UsageError("--interactive cannot be used with --format: it has its own form of output")
    if not sys.stdin.isatty():
        raise UsageError("--interactive needs a terminal. Files and pipes are translated without it")


def check_checkpoints(options: CheckpointOptions) -> None:
    """Raise UsageError for a text file in place of a checkpoint."""
    for path in options.checkpoints:
        if path.is_file() and path.suffix != ".safetensors":
            raise UsageError(f"{path} is a file, not a checkpoint; to translate it, give --input {path} or < {path}")


def check_files(outputs: Mapping[str, Path | int | None], inputs: Mapping[str, Path | int | None]) -> None:
    """Raise UsageError for an output file that is an input, is a file of nmt's own, or is in no directory.

    Args:
        outputs: by flag, paths or file descriptors.
        inputs: by name for messages.
    """
    for name, place in outputs.items():
        shown = f"{name} {place}" if isinstance(place, Path) else "standard output"
        for which, read in inputs.items():
            if place is not None and read is not None and identity(place) == identity(read) is not None:
                raise UsageError(f"{shown} is {which}: choose another name")
        if isinstance(place, Path) and not place.parent.is_dir():
            raise UsageError(f"{name} {place}: there is no directory {place.parent}")
        if isinstance(place, Path) and identity(place) and (owner := _owner_of(place)):
            raise UsageError(f"{name} {place}: this is a file of {owner}; choose another name")


def _owner_of(path: Path) -> str | None:
    """Return whose file this is: a checkpoint's, a run's or that of prepared data; None if it is none of these."""
    from nmt_cli.checkpoint import CHECKSUMS
    from nmt_cli.data.corpus import MANIFEST, SPLITS
    from nmt_cli.training.run_directory import CONFIG, METRICS, SUMMARY

    path = path.resolve()
    folder = path.parent
    if any((each / CHECKSUMS).exists() for each in path.parents[:2]):
        return "a checkpoint"
    if path.name in (CONFIG, METRICS, SUMMARY) and (folder / CONFIG).exists() and (folder / METRICS).exists():
        return "a run"
    if path.name.partition(".")[0] in (Path(MANIFEST).stem, *SPLITS) and (folder / MANIFEST).exists():
        return "prepared data"
    return None


def identity(place: Path | int) -> tuple[int, int] | None:
    """Return what identifies a regular file under any name; None if it is something else, or missing."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
