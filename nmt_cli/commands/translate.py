"""`nmt translate`: translation of lines, one line of output for each line of input."""

from __future__ import annotations

import dataclasses
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from nmt_cli.commands.prefix_file import PrefixFile, open_prefixes
from nmt_cli.decoding.options import SamplingOptions, SearchOptions, TranslateOptions
from nmt_cli.errors import UsageError, counted
from nmt_cli.files.opening import Input, open_input, open_output
from nmt_cli.files.text import read_windows
from nmt_cli.flags import IMPORTS_HELP, Command, MoreFlags, Panel
from nmt_cli.registry import argument, option

if TYPE_CHECKING:  # these import torch, which `nmt translate --help` must not
    from nmt_cli.decoding.attention_page import AttentionPage
    from nmt_cli.decoding.translator import Translation, Translator


@dataclass(frozen=True, kw_only=True)
class TranslateCommandOptions:
    """Translate lines from standard input to standard output, one line out for each line in."""

    checkpoints: tuple[Path, ...] = argument(
        "CHECKPOINT...", "A checkpoint, or a run (its newest checkpoint). Several are an ensemble."
    )
    input: Path | None = option(None, "Read this file instead of standard input.", names=("--input", "-i"))
    output: Path | None = option(
        None, "Write this file instead of standard output; gzip if it ends in .gz.", names=("--output", "-o")
    )
    prefix: Path | None = option(None, "Begin each output with the text of its line in this file.")
    interactive: bool = option(False, "Translate lines as they are typed.")
    greedy: bool = option(False, "Same as --beam 1.")
    scores: bool = option(False, "Write the score and a tab before each output.")
    attention: Path | None = option(None, "Also write a page that shows every head's attention.", metavar="FILE.html")
    device: str = option("auto", "Device to use: auto, cpu, cuda or cuda:N.")
    quiet: bool = option(False, "No progress and no summary on stderr.", names=("--quiet", "-q"))
    imports: tuple[str, ...] = option((), IMPORTS_HELP, metavar="MODULE", names=("--import",))
    chosen: Mapping[str, Any] = field(default_factory=dict)  # fields of `TranslateOptions` and `SearchOptions`


def translate(options: TranslateCommandOptions) -> None:
    """Translate the input, or each line that is typed.

    Raises:
        UsageError: flags that do not fit together; a file in place of a checkpoint.
        DataError: the input cannot be read.
        CheckpointError: as `load_translator`.
        OSError: the output cannot be written.
    """
    from nmt_cli import registry
    from nmt_cli.decoding.loading import load_translator

    registry.discover(options.imports)
    _check(options)
    search = {**options.chosen, "beam": 1} if options.greedy else options.chosen
    say = (lambda message: None) if options.quiet else _say
    with ExitStack() as stack:
        if options.interactive:
            from nmt_cli.commands.interactive import converse

            converse(load_translator(options.checkpoints, options.device, search, say))
        else:
            source = stack.enter_context(open_input(options.input))
            prefixes = stack.enter_context(open_prefixes(options.prefix))
            translator = load_translator(options.checkpoints, options.device, search, say)
            page = stack.enter_context(_attention_page(translator, options))
            write = stack.enter_context(open_output(options.output))
            if options.input is None and sys.stdin.isatty():
                say("Type lines; Ctrl-D ends.")
            _translate_stream(translator, source, prefixes, write, page, options)


def format_translation(translation: Translation, number: int, nbest: int, scores: bool) -> str:
    """Return the output lines of input line `number`.

    One best: the text, after its score and a tab if `scores`. N best: a line for each output, best first, with the
    line's number (from 1), the score and the text, separated by tabs.
    """
    rows = []
    for output in translation.outputs:
        text = output.text.replace("\n", " ")
        if nbest > 1:
            rows.append(f"{number}\t{output.score:.4f}\t{text}\n")
        else:
            rows.append(f"{output.score:.4f}\t{text}\n" if scores else f"{text}\n")
    return "".join(rows)


@dataclass
class _Counts:
    """Figures of the summary; the time excludes waiting for input."""

    lines: int = 0
    tokens: int = 0
    seconds: float = 0.0
    outputs: int = 0
    repaired: int = 0  # outputs
    repairs: Counter[str] = field(default_factory=Counter)  # by kind

    def add(self, translation: Translation) -> None:
        self.lines += 1
        self.tokens += len(translation.outputs[0].token_scores)
        for output in translation.outputs:
            self.outputs += 1
            self.repaired += bool(output.repairs)
            self.repairs.update(output.repairs)

    def summary(self) -> Iterator[str]:
        seconds = max(self.seconds, 1e-6)
        yield (
            f"translated {counted(self.lines, 'line')} in {self.seconds:.1f} s: "
            f"{self.lines / seconds:,.1f} sentences/s, {self.tokens / seconds:,.0f} target tokens/s"
        )
        if self.repaired:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in self.repairs.most_common())
            yield f"repaired {self.repaired:,} of {self.outputs:,} outputs: {kinds}"


def _translate_stream(
    translator: Translator,
    source: Input,
    prefixes: PrefixFile | None,
    write: Callable[[bytes], None],
    page: AttentionPage | None,
    options: TranslateCommandOptions,
) -> None:
    counts = _Counts()
    with _progress(source, options) as advance:
        for window in read_windows(source, translator.options.read_ahead, _warn):
            first = counts.lines + 1
            beginnings = prefixes.take(len(window), source.name) if prefixes else None
            start = time.perf_counter()
            translations = translator.translate_window(window, advance, first=first, prefixes=beginnings)
            counts.seconds += time.perf_counter() - start
            rows = [_format(translator, translation, n, options) for n, translation in enumerate(translations, first)]
            write("".join(rows).encode())
            for number, translation in enumerate(translations, first):
                counts.add(translation)
                if translation.truncated:
                    _warn(
                        f"{source.name}:{number}: longer than {translator.options.max_source_length} tokens; the rest "
                        "of the line is not translated (--max-source-length)"
                    )
                if page is not None:
                    page.add(translation, f"{source.name}:{number}")
    if prefixes:
        prefixes.end(source.name)
    if not options.quiet:
        for line in counts.summary():
            _say(line)


def _format(translator: Translator, translation: Translation, number: int, options: TranslateCommandOptions) -> str:
    """Return a translation as a drawing, on a terminal and if its task has one, or else as lines."""
    nbest = translator.options.search.nbest
    draws = nbest == 1 and translation.text and _to_terminal(options)
    drawing = translator.task.drawing(translation.text) if draws else None
    if drawing is None:
        return format_translation(translation, number, nbest, options.scores)
    console = Console(highlight=False)
    with console.capture() as captured:
        if options.scores:
            console.print(f"{translation.outputs[0].score:.4f}")
        console.print(drawing, soft_wrap=True)
    return captured.get()


def _to_terminal(options: TranslateCommandOptions) -> bool:
    return options.output is None and sys.stdout.isatty()


@contextmanager
def _progress(source: Input, options: TranslateCommandOptions) -> Iterator[Callable[[Sequence[str]], None]]:
    """Show progress on a terminal, unless the translations appear there: for a file, the share done and the time left.

    Yield the function to call with the lines that have been translated.
    """
    if options.quiet or _to_terminal(options) or not sys.stderr.isatty():
        yield lambda lines: None
        return
    known = (BarColumn(), TaskProgressColumn(), TextColumn("done,"), TimeRemainingColumn(), TextColumn("left"))
    columns = (TextColumn("{task.description}"), *(known if source.size else (SpinnerColumn(),)))
    start, count, length = time.monotonic(), 0, 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("translating" if source.size else "waiting for input", total=source.size)

        def advance(lines: Sequence[str]) -> None:
            nonlocal count, length
            count += len(lines)
            length += sum(len(line.encode()) + 1 for line in lines)
            text = f"{count:,} lines translated, {count / (time.monotonic() - start):,.1f} lines/s"
            bar.update(task, description=text, completed=source.file_position(length))

        yield advance


@contextmanager
def _attention_page(translator: Translator, options: TranslateCommandOptions) -> Iterator[AttentionPage | None]:
    """Yield the page that collects translations, and write it at the end."""
    if options.attention is None:
        yield None
        return
    from nmt_cli.decoding.attention_page import AttentionPage

    page = AttentionPage(translator, os.fspath(options.checkpoints[0]), _warn)
    with open_output(options.attention) as write:
        yield page
        write(page.html())
    if not options.quiet:
        _say(f"attention of {counted(len(page), 'sentence')}: {options.attention}; open it in a browser")


def _check(options: TranslateCommandOptions) -> None:
    """Raise UsageError for flags and files that do not fit together."""
    for path in options.checkpoints:
        if path.is_file() and path.suffix != ".safetensors":
            raise UsageError(f"{path} is a file, not a checkpoint; to translate it, give --input {path} or < {path}")
    if options.greedy and options.chosen.get("beam", 1) != 1:
        raise UsageError("--greedy is --beam 1: leave out one of them")
    if options.greedy and options.chosen.get("sample"):
        raise UsageError("--sample draws outputs and --greedy searches for them: leave out one of them")
    if options.interactive:
        if options.input or options.output or options.attention or options.prefix:
            raise UsageError("--interactive uses the terminal: leave out --input, --output, --prefix and --attention")
        if not sys.stdin.isatty():
            raise UsageError("--interactive needs a terminal; leave it out to translate a file or a pipe")
        return
    if options.attention and len(options.checkpoints) > 1:
        raise UsageError("--attention shows one model, not an ensemble: give one checkpoint")
    if options.attention and options.output and options.attention.resolve() == options.output.resolve():
        raise UsageError(f"--attention and --output are the same file: {options.output}")
    _check_files(options)


def _check_files(options: TranslateCommandOptions) -> None:
    """Raise UsageError for an output file that is the input, or is in no directory."""
    source = _identity(sys.stdin.fileno() if options.input is None else options.input)
    for name, place in (("--output", options.output or sys.stdout.fileno()), ("--attention", options.attention)):
        shown = f"{name} {place}" if isinstance(place, Path) else "standard output"
        if place is not None and source is not None and _identity(place) == source:
            raise UsageError(f"{shown} is the input itself: choose another name")
        if place is not None and options.prefix and _identity(place) == _identity(options.prefix) is not None:
            raise UsageError(f"{shown} is the file of --prefix: choose another name")
        if isinstance(place, Path) and not place.parent.is_dir():
            raise UsageError(f"{name} {place}: there is no directory {place.parent}")


def _identity(place: Path | int) -> tuple[int, int] | None:
    """Return what identifies a regular file under any name; None if it is something else, or missing."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _warn(message: str) -> None:
    _say(f"warning: {message}")


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


command = Command(
    TranslateCommandOptions,
    lambda options, chosen: translate(dataclasses.replace(options, chosen=chosen)),
    lambda imports: MoreFlags(
        [
            Panel("search", SearchOptions),
            Panel("sampling", SamplingOptions),
            Panel("batches and limits", TranslateOptions),
        ]
    ),
    examples=[
        "nmt translate run < test.en > test.translated",
        "nmt translate run/averaged --input test.en.gz --output test.out --beam 8",
        "nmt translate run --interactive",
        "nmt translate run --prefix typed.de < test.en",
        "nmt translate run --sample --top-p 0.9 --nbest 5 --seed 1 < test.en",
        "nmt translate run-1 run-2 run-3 < test.en",
        "nmt translate run --attention attention.html < few-sentences.en",
    ],
)
