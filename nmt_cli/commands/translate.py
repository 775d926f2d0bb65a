"""`nmt translate`: translation, one line of output for each line of input."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli import registry
from nmt_cli.commands.translate_formats import FORMATS
from nmt_cli.commands.translate_options import TranslateCommandOptions, check, with_test_text
from nmt_cli.commands.translate_streams import Results, Totals, Work, write_results
from nmt_cli.cores import Sizes
from nmt_cli.decoding.outputs import Translation
from nmt_cli.errors import main_rank_reports
from nmt_cli.flags import Command

if TYPE_CHECKING:
    from nmt_cli.decoding.translator import Translator


def translate(options: TranslateCommandOptions) -> None:
    """Translate the input, or each line that is typed."""
    with main_rank_reports():
        options = with_test_text(options)
        check(options)
    if options.interactive:
        registry.method("converse")(_load(options))
        return
    read_ahead = options.translation.read_ahead
    files = options.translation.files
    totals = write_results(options, options.prefix, "translated", read_ahead, _start, files)
    if totals.repairs:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in totals.repairs.most_common())
        options.note(f"repaired {totals.repaired:,} of {totals.outputs:,} outputs: {kinds}")


def _load(options: TranslateCommandOptions) -> Translator:
    shows_scores = (
        options.format not in (None, "text")
        or options.translation.search.nbest > 1
        or options.interactive
    )
    return options.translator(options.translation, scores=shows_scores, say=options.note)


def _start(options: TranslateCommandOptions, stack: ExitStack) -> tuple[Work, Sizes]:
    """Load the model, and return the function that translates a window of lines and prefixes."""
    translator = _load(options)
    if options.prefix:
        translator.chain.check_prefix()
    writers = [around for around in translator.chain.arounds if around.file]
    workers = stack.enter_context(translator.engine.workers(translator, options.workers))
    name = options.input or "standard input"

    def work(
        advance: Callable[[Sequence[str]], None], first: int, lines: list[str], prefixes: list[str]
    ) -> Results:
        start = time.perf_counter()
        translations = translator.translate_window(
            lines, advance, first=first, prefixes=prefixes or None, workers=workers
        )
        totals = Totals(lines=len(translations), seconds=time.perf_counter() - start)
        rows = []
        rows_beside: dict[Path | None, list[str]] = {around.file: [] for around in writers}
        warnings = []
        limit = translator.options.max_source_length
        for number, translation in enumerate(translations, first):
            rows.append(_format(translator, translation, number, options))
            _count(totals, translation)
            for output in translation.outputs:
                for around in writers:
                    rows_beside[around.file].append(f"{around.row(output)}\n")
            for problem in _problems(translation, limit, translator.engine.positions):
                warnings.append(f"{name}:{number}: {problem}")
        texts = ["".join(rows)]
        for file in options.translation.files:
            texts.append("".join(rows_beside[file]))
        return texts, totals, warnings

    return work, translator.engine.sizes


def _count(totals: Totals, translation: Translation) -> None:
    """Add the outputs of a line."""
    best = translation.outputs[0]
    if best.token_scores:
        totals.tokens += len(best.token_scores)
    elif best.ids:  # an engine may leave out the scores
        totals.tokens += len(best.ids) + 1  # EOS
    for output in translation.outputs:
        totals.outputs += 1
        totals.repaired += bool(output.repairs)
        totals.repairs.update(output.repairs)


def _problems(translation: Translation, limit: int, positions: int | None) -> Iterator[str]:
    """Yield the warnings about a line.

    Args:
        limit: of --max-source-length.
        positions: the number of positions that the model has learned, or None.
    """
    if translation.truncated:
        yield (
            f"the line or a part of it is longer than {limit} tokens; the rest of it is not "
            "translated (--max-source-length)"
        )
    if translation.unknown:
        yield "nothing of this line is in the vocabulary; its output is a guess"
    # EOS needs a position, too.
    if positions is not None and translation.longest >= positions:
        yield (
            f"the line or a part of it is longer than the {positions} positions that the model has "
            "learned, or its output is; translate shorter lines"
        )


def _format(
    translator: Translator, translation: Translation, number: int, options: TranslateCommandOptions
) -> str:
    """Return a translation in its format.

    Without a format, a terminal shows the drawing of a translation, if its task has one.
    """
    nbest = translator.options.search.nbest
    drawing = None
    if nbest == 1 and options.format is None and translation.text and options.to_terminal:
        drawing = translator.task.drawing(translation.text)
    if drawing is None:
        default = "text" if nbest == 1 else "tsv"
        return FORMATS[options.format or default](translation, number)
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(drawing, soft_wrap=True)
    return captured.get()


command = Command(
    TranslateCommandOptions,
    translate,
    examples=[
        "nmt translate run < test.en > test.translated",
        "nmt translate run/averaged --test | nmt score - --ref run",
        "nmt translate run/averaged --input test.en.gz --output test.out --beam 8",
        "nmt translate run --interactive",
        "nmt translate run --prefix typed.de < test.en",
        "nmt translate run --split-sentences < paragraphs.en",
        "nmt translate run --sample --top-p 0.9 --nbest 5 --seed 1 < test.en",
        "nmt translate run-1 run-2 run-3 < test.en",
        "nmt translate run -i test.en -o test.out --alignments test.links",
        "nmt translate run --replace-unknown --dictionary words.tsv < test.en",
        "nmt translate run --markup --glossary terms.tsv < page.html",
        "nmt translate run --dtype int8 < test.en",
        "nmt translate run --nbest 8 --format json < test.en > test.jsonl",
    ],
)
