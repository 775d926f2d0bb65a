"""`nmt translate`: lines from standard input or a file, translated, one line out for each line in."""

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
from rich.progress import Progress, SpinnerColumn, TextColumn

from nmt_cli.decoding.options import SearchOptions, TranslateOptions
from nmt_cli.errors import UsageError
from nmt_cli.files.opening import Input, open_input, open_output
from nmt_cli.files.text import read_windows
from nmt_cli.flags import IMPORTS_HELP, Command, MoreFlags, Panel
from nmt_cli.registry import argument, option

if TYPE_CHECKING:  # what needs torch is imported when something is translated: `nmt translate --help` is light
    from nmt_cli.decoding.attention_page import AttentionPage
    from nmt_cli.decoding.translator import Translation, Translator


@dataclass(frozen=True, kw_only=True)
class TranslateCommandOptions:
    """Translate lines from standard input to standard output, one line out for each line in."""

    checkpoints: tuple[Path, ...] = argument(
        "CHECKPOINT...", "A checkpoint, or a run (its newest one); several: an ensemble."
    )
    input: Path | None = option(None, "Read this file, plain or .gz, instead of stdin.", names=("--input", "-i"))
    output: Path | None = option(None, "Write this file instead of stdout.", names=("--output", "-o"))
    interactive: bool = option(False, "Translate lines as they are typed.")
    greedy: bool = option(False, "Same as --beam 1.")
    scores: bool = option(False, "Write each output's score before it, and a tab.")
    attention: Path | None = option(None, "Also write a page that shows every head's attention.", metavar="FILE.html")
    device: str = option("auto", "Device to use: auto, cpu, cuda or cuda:N.")
    quiet: bool = option(False, "No progress and no summary on stderr.", names=("--quiet", "-q"))
    imports: tuple[str, ...] = option((), IMPORTS_HELP, metavar="MODULE", names=("--import",))
    chosen: Mapping[str, Any] = field(default_factory=dict)  # fields of `TranslateOptions` and `SearchOptions`


@dataclass
class _Meter:
    """What was done, and in how much time that was not spent waiting for input."""

    lines: int = 0
    tokens: int = 0
    seconds: float = 0.0
    outputs: int = 0
    repaired: int = 0  # outputs
    repairs: Counter[str] = field(default_factory=Counter)  # by kind

    def count_repairs(self, translation: Translation) -> None:
        for output in translation.outputs:
            self.outputs += 1
            self.repaired += bool(output.repairs)
            self.repairs.update(output.repairs)

    def __str__(self) -> str:
        seconds = max(self.seconds, 1e-6)
        unit = "line" if self.lines == 1 else "lines"
        rates = f"{self.lines / seconds:,.1f} sentences/s, {self.tokens / seconds:,.0f} target tokens/s"
        return f"{self.lines:,} {unit} in {self.seconds:.1f} s: {rates}"


def translate(settings: TranslateCommandOptions) -> None:
    """Translates the input line by line, or interactively.

    Raises:
        UsageError: settings that do not fit.
        DataError: the input cannot be opened, or is a damaged .gz.
        CheckpointError: as `load_translator`.
        OSError: the output cannot be written.
    """
    from nmt_cli import registry
    from nmt_cli.decoding.loading import load_translator

    registry.discover(settings.imports)
    with ExitStack() as stack:
        if settings.interactive:
            _check_interactive(settings)
        else:
            stream = stack.enter_context(open_input(settings.input))
        _check_attention(settings)
        _check_files(settings)
        translator = load_translator(settings.checkpoints, settings.device, settings.chosen, _say)
        if settings.interactive:
            from nmt_cli.commands.interactive import converse

            converse(translator)
        else:
            page = _attention_page(translator, settings)
            write = stack.enter_context(open_output(settings.output))
            look = stack.enter_context(_opened_attention(page, settings))
            _translate_stream(translator, stream, write, look, settings)


def format_translation(translation: Translation, number: int, nbest: int, scores: bool) -> str:
    """The output lines of one input line, each with its line feed.

    One best: the text, after its score and a tab if scores are wanted. N best: one line for each output, best first:
    the number of the input line (from 1), the score and the text, separated by tabs.
    """
    rows = []
    for output in translation.outputs:
        text = output.text.replace("\n", " ")
        if nbest > 1:
            rows.append(f"{number}\t{output.score:.4f}\t{text}\n")
        else:
            rows.append(f"{output.score:.4f}\t{text}\n" if scores else f"{text}\n")
    return "".join(rows)


def _translate_stream(
    translator: Translator,
    stream: Input,
    write: Callable[[bytes], None],
    look: Callable[[Translation, str], None],
    settings: TranslateCommandOptions,
) -> None:
    meter = _Meter()
    name = _name(settings.input)
    form = _form(translator, settings)
    with _progress(settings) as advance:
        for window in read_windows(stream, translator.options.read_ahead, _warn):
            start = time.perf_counter()
            translations = translator.translate_window(window, advance)
            meter.seconds += time.perf_counter() - start
            rows = []
            for number, translation in enumerate(translations, start=meter.lines + 1):
                _warn_if_truncated(translation, f"{name}:{number}", translator.options.max_source_length)
                meter.tokens += len(translation.outputs[0].token_scores)
                meter.count_repairs(translation)
                rows.append(form(translation, number))
            write("".join(rows).encode())
            for number, translation in enumerate(translations, start=meter.lines + 1):
                look(translation, f"{name}:{number}")
            meter.lines += len(window)
    if not settings.quiet:
        _say(f"translated {meter}")
        if meter.repaired:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in meter.repairs.most_common())
            _say(f"repaired {meter.repaired:,} of {meter.outputs:,} outputs: {kinds}")


def _form(translator: Translator, settings: TranslateCommandOptions) -> Callable[[Translation, int], str]:
    """Return the function that formats a translation: as a drawing on a terminal if the task has one, else as lines."""
    nbest = translator.options.search.nbest
    draws = nbest == 1 and _to_terminal(settings)

    def form(translation: Translation, number: int) -> str:
        drawing = translator.task.drawing(translation.text) if draws and translation.text else None
        if drawing is None:
            return format_translation(translation, number, nbest, settings.scores)
        console = Console(highlight=False)
        with console.capture() as captured:
            if settings.scores:
                console.print(f"{translation.outputs[0].score:.4f}")
            console.print(drawing, soft_wrap=True)
        return captured.get()

    return form


def _to_terminal(settings: TranslateCommandOptions) -> bool:
    return settings.output is None and sys.stdout.isatty()


@contextmanager
def _progress(settings: TranslateCommandOptions) -> Iterator[Callable[[int], None]]:
    """A line that grows on a terminal, unless the translations appear there themselves."""
    if settings.quiet or _to_terminal(settings) or not sys.stderr.isatty():
        yield lambda lines: None
        return
    progress = Progress(SpinnerColumn(), TextColumn("{task.description}"), console=Console(stderr=True), transient=True)
    with progress:
        task = progress.add_task("waiting for input")
        start = time.monotonic()
        total = 0

        def advance(lines: int) -> None:
            nonlocal total
            total += lines
            rate = total / max(time.monotonic() - start, 1e-6)
            progress.update(task, description=f"{total:,} lines translated, {rate:,.1f} a second")

        yield advance


def _check_attention(settings: TranslateCommandOptions) -> None:
    if settings.attention is None:
        return
    if settings.interactive:
        raise UsageError("--attention makes its page from lines of --input or stdin: leave out --interactive")
    if len(settings.checkpoints) > 1:
        raise UsageError(
            f"--attention looks into one model, and {len(settings.checkpoints)} checkpoints are an ensemble: give one"
        )
    for flag, other in (("--input", settings.input), ("--output", settings.output)):
        if other is not None and os.path.realpath(other) == os.path.realpath(settings.attention):
            raise UsageError(f"--attention {settings.attention} is the file of {flag}, too: choose another name")


def _check_files(settings: TranslateCommandOptions) -> None:
    """Raises UsageError where an output is the file that is read, whose text it would destroy or never come to an end
    of.
    """
    if settings.interactive:
        return
    source = _identity(sys.stdin.fileno() if settings.input is None else settings.input)
    outputs: list[tuple[str, Path | int | None]] = [
        ("standard output", sys.stdout.fileno()) if settings.output is None else ("--output", settings.output),
        ("--attention", settings.attention),
    ]
    for flag, place in outputs:
        if place is not None and source is not None and _identity(place) == source:
            name = f"{flag} {place}" if isinstance(place, Path) else flag
            raise UsageError(f"{name} is the input itself: choose another name")


def _identity(place: Path | int) -> tuple[int, int] | None:
    """What tells a file from all others, by whatever name it was opened; nothing for what is no regular file."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _attention_page(translator: Translator, settings: TranslateCommandOptions) -> AttentionPage | None:
    if settings.attention is None:
        return None
    from nmt_cli.decoding.attention_page import AttentionPage

    return AttentionPage(translator, os.fspath(settings.checkpoints[0]), _warn)


@contextmanager
def _opened_attention(
    page: AttentionPage | None, settings: TranslateCommandOptions
) -> Iterator[Callable[[Translation, str], None]]:
    """Yields the function that is shown each translation; writes the page when all are seen."""
    path = settings.attention
    if page is None or path is None:
        yield lambda translation, place: None
        return
    with open_output(path) as write:
        yield page.add
        content = page.html()
        write(content)
    if not settings.quiet:
        sentences = f"{len(page)} sentence{'' if len(page) == 1 else 's'}"
        _say(f"attention of {sentences}: {path} ({len(content) / 1000:,.0f} kB); open it in a browser")


def _check_interactive(settings: TranslateCommandOptions) -> None:
    if settings.input is not None or settings.output is not None:
        raise UsageError("--interactive reads from the terminal and writes to it: leave out --input and --output")
    if not sys.stdin.isatty():
        raise UsageError("--interactive needs a terminal; leave it out to translate lines from a file or a pipe")


def _warn_if_truncated(translation: Translation, place: str, limit: int) -> None:
    if translation.truncated:
        _warn(f"{place}: longer than {limit} tokens; the rest of the line is not translated (--max-source-length)")


def _name(path: Path | None) -> str:
    return "standard input" if path is None else os.fspath(path)


def _warn(message: str) -> None:
    _say(f"warning: {message}")


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _run(options: TranslateCommandOptions, chosen: Mapping[str, Any]) -> None:
    greedy = {"beam": 1} if options.greedy else {}
    translate(dataclasses.replace(options, chosen={**chosen, **greedy}))


def _search_flags(imports: Sequence[str]) -> MoreFlags:
    return MoreFlags([Panel("search", SearchOptions), Panel("batches", TranslateOptions)])


command = Command(
    TranslateCommandOptions,
    _run,
    _search_flags,
    examples=[
        "nmt translate run < test.en > test.translated",
        "nmt translate run/averaged --input test.en.gz --output test.translated --beam 8 --alpha 0.6",
        "nmt translate run --interactive",
        "nmt translate run-1 run-2 run-3 < test.en",
        "nmt translate run --attention attention.html < few-sentences.en",
    ],
)
