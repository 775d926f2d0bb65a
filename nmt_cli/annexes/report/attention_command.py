"""`nmt attention`: a page with the attention of every layer and head."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from nmt_cli import registry
from nmt_cli.commands.translate_options import check_output
from nmt_cli.decoding.options import SearchOptions, TranslateOptions
from nmt_cli.errors import counted
from nmt_cli.files.opening import open_input, open_output
from nmt_cli.files.text import read_windows
from nmt_cli.flags import Command, device_option, import_option
from nmt_cli.registry import REQUIRED, argument, group, option
from nmt_cli.streams import say, warn


@dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """Write a page with the attention of every layer and head, as in the paper's appendix.

    The page shows the first 20 lines of the input and their best outputs.
    """

    checkpoint: Path = argument("CHECKPOINT", "A checkpoint, or a run (its newest checkpoint).")
    input: Path | None = option(
        None, "Read this file instead of standard input.", names=("--input", "-i")
    )
    out: Path = option(REQUIRED, "The page to write.", metavar="PAGE.html")
    device: str = device_option()
    imports: tuple[str, ...] = import_option()
    search: SearchOptions = group("search", SearchOptions, without=("nbest",))


def attention(options: AttentionOptions) -> None:
    """Translate the first lines of the input, and write the page."""
    from nmt_cli.annexes.report.attention import MAX_SENTENCES, sentences_of
    from nmt_cli.annexes.report.page import page
    from nmt_cli.decoding.loading import load_translator

    check_output(options.out, options.input)
    registry.discover(options.imports)
    chosen = TranslateOptions(search=options.search)
    with open_input(options.input) as source, open_output(options.out) as write:
        translator = load_translator([options.checkpoint], chosen, device=options.device, say=say)
        all_lines = itertools.chain.from_iterable(read_windows(source, MAX_SENTENCES, warn))
        lines: dict[str, str] = {}  # by place
        for number, line in enumerate(all_lines, 1):
            if not line.strip():
                continue
            if len(lines) == MAX_SENTENCES:
                warn(f"{source.name}: the page shows the first {MAX_SENTENCES} lines")
                break
            lines[f"{source.name}:{number}"] = line
        sentences = sentences_of(translator, lines)
        number_of_sentences = counted(len(sentences), "sentence")
        about = f"{options.checkpoint} · {number_of_sentences}"
        write(page("Attention", about, ["attention"], {"sentences": sentences}))
    say(f"attention of {number_of_sentences}: {options.out}; open it in a browser")


command = Command(
    AttentionOptions,
    attention,
    examples=[
        "nmt attention run/averaged --input few.en --out page.html",
        "nmt attention run --beam 1 --out page.html < few.en",
    ],
)
