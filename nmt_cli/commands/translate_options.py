"""The flags of `nmt translate`, and whether they fit together."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from nmt_cli.commands.translate_formats import FORMATS
from nmt_cli.commands.translate_streams import shard_numbers
from nmt_cli.config import flag
from nmt_cli.decoding.options import ModelOptions
from nmt_cli.errors import UsageError
from nmt_cli.registry import option


@dataclass(frozen=True, kw_only=True)
class TranslateCommandOptions(ModelOptions):
    """Translate lines from standard input to standard output, one line out for each line in."""

    input: Path | None = option(None, "Read this file instead of standard input.", names=("--input", "-i"))
    output: Path | None = option(
        None,
        "Write this file instead of standard output; compressed if it ends in .gz, .xz or .bz2.",
        names=("--output", "-o"),
    )
    shard: str | None = option(
        None,
        "Translate part I (from 1) of N of --input; the outputs of 1/N to N/N, joined, are the whole.",
        metavar="I/N",
    )
    format: str | None = option(
        None,
        "text: plain lines. tsv: line number, score, text. moses: Moses' n-best lists. json: an object for each line "
        "of input. [default: text; tsv with --nbest]",
        choices=tuple(FORMATS),
    )
    prefix: Path | None = option(None, "Begin each output with the text of its line in this file.")
    interactive: bool = option(False, "Translate lines as they are typed.")
    greedy: bool = option(False, "Same as --beam 1.")
    scores: bool = option(False, "In --format text, write the score and a tab before each output.")
    score_target: Path | None = option(
        None, "Do not search, but score the lines of this file: log-probability, number of tokens, line."
    )
    token_scores: bool = option(False, "With --score-target: also each token and its log-probability, token:-0.25.")
    attention: Path | None = option(None, "Also write a page that shows every head's attention.", metavar="FILE.html")
    quiet: bool = option(False, "No progress, summary or warnings about lines on stderr.", names=("--quiet", "-q"))


def check(options: TranslateCommandOptions) -> None:
    """Raise UsageError for flags and files that do not fit together."""
    for path in options.checkpoints:
        if path.is_file() and path.suffix != ".safetensors":
            raise UsageError(f"{path} is a file, not a checkpoint; to translate it, give --input {path} or < {path}")
    _check_search(options)
    _check_scoring(options)
    others = [name for name in ("prefix", "score_target", "attention") if getattr(options, name)]
    if options.engine != "nmt" and others:
        raise UsageError(f"{flag(others[0])} needs nmt's own engine: leave it out, or --engine {options.engine}")
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
    _check_files(options)


def _check_search(options: TranslateCommandOptions) -> None:
    """Raise UsageError for flags of the search that do not fit together."""
    if options.greedy and options.chosen.get("beam", 1) != 1:
        raise UsageError("--greedy is --beam 1: leave out one of them")
    if options.greedy and options.chosen.get("sample"):
        raise UsageError("--sample draws outputs and --greedy searches for them: leave out one of them")
    if options.chosen.get("split_sentences") and (options.prefix or options.attention):
        which = "--prefix" if options.prefix else "--attention"
        raise UsageError(f"--split-sentences joins the outputs of a line's sentences: leave out {which}")
    options.check_dictionary()


def _check_interactive(options: TranslateCommandOptions) -> None:
    """Raise UsageError for a flag that does not fit --interactive, and if there is no terminal."""
    if options.input or options.output or options.attention or options.prefix:
        raise UsageError("--interactive uses the terminal: leave out --input, --output, --prefix and --attention")
    if options.workers:
        raise UsageError("--interactive translates a line at a time: leave out --workers")
    if options.format:
        raise UsageError("--interactive has its own form of output: leave out --format")
    if not sys.stdin.isatty():
        raise UsageError("--interactive needs a terminal; leave it out to translate a file or a pipe")


def _check_scoring(options: TranslateCommandOptions) -> None:
    """Raise UsageError for a flag that means nothing with --score-target, or without it."""
    if not options.score_target:
        if options.token_scores:
            raise UsageError("--token-scores needs --score-target; --format json writes the scores of output tokens")
        return
    searching = ("format", "interactive", "greedy", "scores", "attention", "prefix", "workers")
    given = [name for name in searching if getattr(options, name)] + ["dtype"] * (options.dtype != "auto")
    given += sorted({*options.chosen} - {"batch_tokens", "read_ahead", "max_source_length"})
    if given:
        flags = " and ".join(map(flag, given))
        raise UsageError(f"--score-target scores given lines and does not search: leave out {flags}")


def _check_files(options: TranslateCommandOptions) -> None:
    """Raise UsageError for an output file that is the input, is of a checkpoint, or is in no directory."""
    read = {
        identity(place) for place in (options.input or sys.stdin.fileno(), options.score_target) if place is not None
    }
    for name, place in (("--output", options.output or sys.stdout.fileno()), ("--attention", options.attention)):
        shown = f"{name} {place}" if isinstance(place, Path) else "standard output"
        if place is not None and identity(place) in read - {None}:
            raise UsageError(f"{shown} is the input itself: choose another name")
        if place is not None and options.prefix and identity(place) == identity(options.prefix) is not None:
            raise UsageError(f"{shown} is the file of --prefix: choose another name")
        if isinstance(place, Path) and not place.parent.is_dir():
            raise UsageError(f"{name} {place}: there is no directory {place.parent}")
        if isinstance(place, Path) and identity(place) and _is_of_checkpoint(place):
            raise UsageError(f"{name} {place}: this is a file of a checkpoint; choose another name")


def _is_of_checkpoint(path: Path) -> bool:
    """Whether the directory of a file, or the one above it, is a checkpoint."""
    return any((folder / "checksums.json").exists() for folder in path.resolve().parents[:2])


def identity(place: Path | int) -> tuple[int, int] | None:
    """Return what identifies a regular file under any name; None if it is something else, or missing."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
