"""`nmt translate --interactive`: lines from the terminal, translated one at a time."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from nmt_cli.decoding.outputs import Translation
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import counted
from nmt_cli.task import Task


def converse(translator: Translator) -> None:
    """Translate each line that is typed, until the end of input (Ctrl-D)."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (gives `input` its editing and history)
    console = Console(highlight=False)
    search = translator.search
    greeting = "Type a line; Ctrl-D ends."
    if search.run is None:
        greeting += f" Beam {search.beam}, alpha {search.alpha}."
    console.print(f"[dim]{greeting}[/dim]")
    try:
        for number in itertools.count(1):
            try:
                line = input("> ")
            except UnicodeDecodeError:
                console.print("[red]That line was not UTF-8; set the terminal to UTF-8.[/red]")
                continue
            if line.strip():
                start = time.perf_counter()
                (translation,) = translator.translate_window([line], first=number)
                _show(console, translator.task, translation, time.perf_counter() - start)
    except EOFError:
        return
    finally:
        console.print()


def _show(console: Console, task: Task, translation: Translation, seconds: float) -> None:
    best = translation.outputs[0]
    drawing = None
    if best.text:
        drawing = task.drawing(best.text)
    if len(translation.outputs) > 1:
        table = Table(box=None, show_header=False)
        for output in translation.outputs:
            table.add_row(Text(f"{output.score:.3f}", style="dim"), Text(output.text, style="bold"))
        console.print(table)
    elif drawing is not None:
        console.print(drawing, soft_wrap=True)
    else:
        console.print(Text(best.text, style="bold"), soft_wrap=True)
    note = f"score {best.score:.3f}, {counted(len(best.token_scores), 'token')} in {seconds:.2f} s"
    if translation.truncated:
        note += f"; only {translation.source_length} tokens of the line were translated"
    repairs = Counter[str]()
    for output in translation.outputs:
        repairs += Counter(output.repairs)
    if repairs:
        counts = ", ".join(f"{kind} {count}" for kind, count in repairs.items())
        note += f"; repaired: {counts}"
    console.print(f"[dim]{escape(note)}[/dim]")
