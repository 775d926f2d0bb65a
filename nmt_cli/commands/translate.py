"""`nmt translate`: translation of lines, one line of output for each line of input."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rich.console import Console

from nmt_cli.commands.translate_formats import FORMATS
from nmt_cli.commands.translate_options import TranslateCommandOptions, check
from nmt_cli.commands.translate_streams import Totals, check_line_counts, parallel_windows, progress
from nmt_cli.decoding.outputs import Translation
from nmt_cli.files.opening import Input, open_input, open_output
from nmt_cli.files.text import read_windows
from nmt_cli.flags import Command
from nmt_cli.streams import say, warnings_by_kind

if TYPE_CHECKING:  # these import torch, which `nmt translate --help` must not
    from nmt_cli.decoding.translator import Translator


def translate(options: TranslateCommandOptions) -> None:
    """Translate the input, or each line that is typed."""
    check(options)
    note = (lambda message: None) if options.quiet else say

    def load() -> Translator:
        plain = options.format in (None, "text") and options.translation.search.nbest == 1 and not options.interactive
        return options.translator(options.translation, scores=not plain, say=note)

    if options.interactive:
        from nmt_cli.commands.interactive import converse

        converse(load())
        return
    check_line_counts(options.input, options.prefix)  # before the work
    with ExitStack() as stack:
        warn = stack.enter_context(warnings_by_kind(options.quiet))
        source = stack.enter_context(open_input(options.input))
        prefixes = stack.enter_context(open_input(options.prefix)) if options.prefix else None
        translator = load()
        write = stack.enter_context(open_output(options.output))
        if options.input is None and sys.stdin.isatty():
            note("Type lines; Ctrl-D ends.")
        ahead = translator.options.read_ahead
        windows: Iterator[tuple[list[str], list[str] | None]] = (
            parallel_windows(source, prefixes, ahead, warn, strict=True)
            if prefixes
            else ((window, None) for window in read_windows(source, ahead, warn))
        )
        for line in _translate_windows(translator, source, windows, write, options, warn):
            note(line)


def _translate_windows(
    translator: Translator,
    source: Input,
    windows: Iterator[tuple[list[str], list[str] | None]],
    write: Callable[[bytes], None],
    options: TranslateCommandOptions,
    warn: Callable[[str], None],
) -> Iterator[str]:
    """Translate lines with their prefixes; then yield the lines of the summary."""
    from nmt_cli.decoding.workers import translation_workers

    totals, outputs, repairs = Totals(), Counter[bool](), Counter[str]()
    what = "a sentence is" if options.translation.split_sentences else "the line is"
    with (
        translation_workers(translator, options.workers) as workers,
        progress(source, "translated", options.shows_progress) as advance,
    ):
        for window, prefixes in windows:
            first = 1 + totals.lines
            start = time.perf_counter()
            translations = translator.translate_window(window, advance, first=first, prefixes=prefixes, workers=workers)
            totals.seconds += time.perf_counter() - start
            rows = [_format(translator, translation, n, options) for n, translation in enumerate(translations, first)]
            write("".join(rows).encode())
            totals.lines += len(translations)
            for number, translation in enumerate(translations, first):
                best = translation.outputs[0]
                # An engine may leave out the scores.
                totals.tokens += len(best.token_scores) or len(best.ids) + bool(best.ids)
                for output in translation.outputs:
                    outputs[bool(output.repairs)] += 1
                    repairs.update(output.repairs)
                if translation.truncated:
                    warn(
                        f"{source.name}:{number}: {what} longer than {translator.options.max_source_length} tokens; "
                        "the rest of it is not translated (--max-source-length)"
                    )
    yield totals.summary("translated")
    if repairs:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in repairs.most_common())
        yield f"repaired {outputs[True]:,} of {outputs.total():,} outputs: {kinds}"


def _format(translator: Translator, translation: Translation, number: int, options: TranslateCommandOptions) -> str:
    """Return a translation in its format; on a terminal, unless one was chosen, as a drawing if its task has one."""
    nbest = translator.options.search.nbest
    draws = nbest == 1 and options.format is None and translation.text and options.to_terminal
    drawing = translator.task.drawing(translation.text) if draws else None
    if drawing is None:
        return FORMATS[options.format or ("text" if nbest == 1 else "tsv")](translation, number)
    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(drawing, soft_wrap=True)
    return captured.get()


command = Command(
    TranslateCommandOptions,
    translate,
    examples=[
        "nmt translate run < test.en > test.translated",
        "nmt translate run/averaged --input test.en.gz --output test.out --beam 8",
        "nmt translate run --interactive",
        "nmt translate run --prefix typed.de < test.en",
        "nmt translate run --split-sentences < paragraphs.en",
        "nmt translate run --sample --top-p 0.9 --nbest 5 --seed 1 < test.en",
        "nmt translate run-1 run-2 run-3 < test.en",
        "nmt translate run --replace-unknown --dictionary words.tsv < test.en",
        "nmt translate run --dtype int8 < test.en",
        "nmt translate run --nbest 8 --format json < test.en > test.jsonl",
    ],
)
