"""`nmt translate`: translation of lines, one line of output for each line of input."""

from __future__ import annotations

import dataclasses
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from nmt_cli.commands.prefix_file import PrefixFile, open_prefixes
from nmt_cli.commands.translate_formats import FORMATS, format_named
from nmt_cli.commands.translate_streams import part_of, progress, shard_numbers
from nmt_cli.config import flag
from nmt_cli.decoding.options import ModelOptions, SamplingOptions, SearchOptions, TranslateOptions
from nmt_cli.decoding.outputs import Translation
from nmt_cli.errors import UsageError, counted
from nmt_cli.files.opening import Input, open_input, open_output
from nmt_cli.files.text import ALL_LINES, read_windows
from nmt_cli.flags import Command, MoreFlags, Panel
from nmt_cli.registry import option
from nmt_cli.streams import say, warn

if TYPE_CHECKING:  # these import torch, which `nmt translate --help` must not
    from nmt_cli.data.parallel import Workers
    from nmt_cli.decoding.attention_page import AttentionPage
    from nmt_cli.decoding.translator import Translator


@dataclass(frozen=True, kw_only=True)
class TranslateCommandOptions(ModelOptions):
    """Translate lines from standard input to standard output, one line out for each line in."""

    input: Path | None = option(None, "Read this file instead of standard input.", names=("--input", "-i"))
    output: Path | None = option(
        None, "Write this file instead of standard output; gzip if it ends in .gz.", names=("--output", "-o")
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
    quiet: bool = option(False, "No progress and no summary on stderr.", names=("--quiet", "-q"))


def translate(options: TranslateCommandOptions) -> None:
    """Translate the input, or each line that is typed.

    Raises:
        UsageError: flags that do not fit together; a file in place of a checkpoint.
        DataError: the input cannot be read.
        CheckpointError: as `load_with`.
        OSError: the output cannot be written.
    """
    from nmt_cli import registry
    from nmt_cli.decoding.workers import translation_workers
    from nmt_cli.export.loading import load_chosen

    registry.discover(options.imports)
    _check(options)
    search = {**options.chosen, "beam": 1} if options.greedy else options.chosen
    note = (lambda message: None) if options.quiet else say

    def load() -> Translator:
        return load_chosen(options, search, scores=not _plain(options), say=note)

    if options.interactive:
        from nmt_cli.commands.interactive import converse

        converse(load())
        return
    part = part_of(options.input, options.shard) if options.input and options.shard else ALL_LINES
    with ExitStack() as stack:
        source = stack.enter_context(open_input(options.input))
        target = stack.enter_context(open_input(options.score_target)) if options.score_target else None
        prefixes = stack.enter_context(open_prefixes(options.prefix))
        translator = load()
        page = stack.enter_context(_attention_page(translator, options))
        write = stack.enter_context(open_output(options.output))
        if options.input is None and sys.stdin.isatty():
            note("Type lines; Ctrl-D ends.")
        if target is None:
            workers = stack.enter_context(translation_workers(translator, options.workers))
            summary = _translate_stream(translator, workers, source, prefixes, write, page, options, part)
        else:
            summary = _score_stream(translator, source, target, write, options, part)
        for line in summary:
            note(line)


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
        best = translation.outputs[0]
        self.tokens += len(best.token_scores) or len(best.ids) + bool(best.ids)  # an engine may leave out the scores
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
    workers: Workers | None,
    source: Input,
    prefixes: PrefixFile | None,
    write: Callable[[bytes], None],
    page: AttentionPage | None,
    options: TranslateCommandOptions,
    part: range,
) -> Iterator[str]:
    """Translate the lines in `part`; return the lines of the summary."""
    counts = _Counts()
    what = "a sentence is" if options.chosen.get("split_sentences") else "the line is"
    if prefixes:
        prefixes.take(part.start - ALL_LINES.start, source.name)
    with _progress(source, part, options) as advance:
        for window in read_windows(source, translator.options.read_ahead, warn, part=part):
            first = part.start + counts.lines
            beginnings = prefixes.take(len(window), source.name) if prefixes else None
            start = time.perf_counter()
            translations = translator.translate_window(
                window, advance, first=first, prefixes=beginnings, workers=workers
            )
            counts.seconds += time.perf_counter() - start
            rows = [_format(translator, translation, n, options) for n, translation in enumerate(translations, first)]
            write("".join(rows).encode())
            for number, translation in enumerate(translations, first):
                counts.add(translation)
                if translation.truncated:
                    warn(
                        f"{source.name}:{number}: {what} longer than {translator.options.max_source_length} tokens; "
                        "the rest of it is not translated (--max-source-length)"
                    )
                if page is not None:
                    page.add(translation, f"{source.name}:{number}")
    if prefixes and part == ALL_LINES:
        prefixes.end(source.name)
    return counts.summary()


def _score_stream(
    translator: Translator,
    source: Input,
    target: Input,
    write: Callable[[bytes], None],
    options: TranslateCommandOptions,
    part: range,
) -> Iterator[str]:
    """Score the lines of `target` that are in `part`; return the lines of the summary."""
    from nmt_cli.commands.translate_targets import check_line_counts, score_stream

    if options.input and options.score_target and _identity(options.input) and _identity(options.score_target):
        check_line_counts(options.input, options.score_target)  # before the work; pipes are compared at their end
    with _progress(source, part, options) as advance:
        totals = score_stream(translator, source, target, write, advance, part, options.token_scores)
    return totals.summary()


def _format(translator: Translator, translation: Translation, number: int, options: TranslateCommandOptions) -> str:
    """Return a translation in its format; on a terminal, unless one was chosen, as a drawing if its task has one."""
    nbest = translator.options.search.nbest
    draws = nbest == 1 and options.format is None and translation.text and _to_terminal(options)
    drawing = translator.task.drawing(translation.text) if draws else None
    if drawing is None:
        return format_named(options.format, nbest)(translation, number, options.scores)
    console = Console(highlight=False)
    with console.capture() as captured:
        if options.scores:
            console.print(f"{translation.outputs[0].score:.4f}")
        console.print(drawing, soft_wrap=True)
    return captured.get()


def _plain(options: TranslateCommandOptions) -> bool:
    """Whether the output is the best text of each line alone, without scores."""
    nbest = options.chosen.get("nbest", 1)
    return options.format in (None, "text") and nbest == 1 and not options.scores and not options.interactive


def _to_terminal(options: TranslateCommandOptions) -> bool:
    return options.output is None and sys.stdout.isatty()


@contextmanager
def _progress(
    source: Input, part: range, options: TranslateCommandOptions
) -> Iterator[Callable[[Sequence[str]], None]]:
    """Show progress on a terminal, unless the outputs appear there."""
    if options.quiet or _to_terminal(options) or not sys.stderr.isatty():
        yield lambda lines: None
        return
    with progress(source, part, "scored" if options.score_target else "translated") as advance:
        yield advance


@contextmanager
def _attention_page(translator: Translator, options: TranslateCommandOptions) -> Iterator[AttentionPage | None]:
    """Yield the page that collects translations, and write it at the end."""
    if options.attention is None:
        yield None
        return
    from nmt_cli.decoding.attention_page import AttentionPage

    page = AttentionPage(translator, os.fspath(options.checkpoints[0]), warn)
    with open_output(options.attention) as write:
        yield page
        write(page.html())
    if not options.quiet:
        say(f"attention of {counted(len(page), 'sentence')}: {options.attention}; open it in a browser")


def _check(options: TranslateCommandOptions) -> None:
    """Raise UsageError for flags and files that do not fit together."""
    for path in options.checkpoints:
        if path.is_file() and path.suffix != ".safetensors":
            raise UsageError(f"{path} is a file, not a checkpoint; to translate it, give --input {path} or < {path}")
    _check_search(options)
    _check_scoring(options)
    _check_engine(options)
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


def _check_engine(options: TranslateCommandOptions) -> None:
    """Raise UsageError for a flag that another engine has nothing for."""
    given = [name for name in ("prefix", "score_target", "attention") if getattr(options, name)]
    if options.engine != "nmt" and given:
        raise UsageError(f"{flag(given[0])} needs nmt's own engine: leave it out, or --engine {options.engine}")


def _check_files(options: TranslateCommandOptions) -> None:
    """Raise UsageError for an output file that is the input, or is in no directory."""
    read = {
        _identity(place) for place in (options.input or sys.stdin.fileno(), options.score_target) if place is not None
    }
    for name, place in (("--output", options.output or sys.stdout.fileno()), ("--attention", options.attention)):
        shown = f"{name} {place}" if isinstance(place, Path) else "standard output"
        if place is not None and _identity(place) in read - {None}:
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
        "nmt translate run --split-sentences < paragraphs.en",
        "nmt translate run --sample --top-p 0.9 --nbest 5 --seed 1 < test.en",
        "nmt translate run-1 run-2 run-3 < test.en",
        "nmt translate run --replace-unknown --dictionary words.tsv < test.en",
        "nmt translate run --engine ctranslate2 --dtype int8 < test.en",
        "nmt translate run --attention attention.html < few-sentences.en",
        "nmt translate run --nbest 8 --format json < test.en > test.jsonl",
        "nmt translate run --input test.en --score-target test.de",
        "nmt translate run --input big.en.gz --shard 1/4 --output part-1",
    ],
)
