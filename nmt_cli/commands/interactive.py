"""`nmt translate --interactive`: a conversation, one line at a time."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from nmt_cli.decoding.translator import Translation, Translator
from nmt_cli.interfaces import Task

_PROMPT = "> "


def converse(translator: Translator) -> None:
    """Answers each line that is typed, until the end of input (Ctrl-D)."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (gives `input` its editing and history)
    console = Console(highlight=False)
    search = translator.options.search
    console.print(f"[dim]Type a line; Ctrl-D ends. Beam {search.beam}, alpha {search.alpha}.[/dim]")
    while (line := _ask(console)) is not None:
        if line.strip():
            start = time.perf_counter()
            (translation,) = translator.translate_window([line])
            _show(console, translator.task, translation, time.perf_counter() - start)


def _ask(console: Console) -> str | None:
    """The next line, whatever bytes it holds; None at the end of input."""
    try:
        return input(_PROMPT).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeDecodeError:
        console.print("[red]That line was not UTF-8; set the terminal to UTF-8.[/red]")
        return ""
    except EOFError:
        console.print()
        return None


def _show(console: Console, task: Task, translation: Translation, seconds: float) -> None:
    if len(translation.outputs) == 1:
        console.print(_shown(task, translation.text), soft_wrap=True)
    else:
        console.print(_table(translation))
    output = translation.outputs[0]
    tokens = len(output.token_scores)
    note = f"score {output.score:.3f}, {tokens} tokens in {seconds:.2f} s"
    if translation.truncated:
        note += f"; only the first {translation.source_length} tokens of your line were read"
    repairs = sum((Counter(output.repairs) for output in translation.outputs), Counter[str]())
    if repairs:
        note += f"; repaired: {', '.join(f'{kind} {count}' for kind, count in repairs.items())}"
    console.print(f"[dim]{escape(note)}[/dim]")


def _shown(task: Task, text: str) -> Any:
    drawing = task.drawing(text) if text else None
    return Text(text, style="bold") if drawing is None else drawing


def _table(translation: Translation) -> Table:
    table = Table(box=None, show_header=False)
    for output in translation.outputs:
        table.add_row(Text(f"{output.score:.3f}", style="dim"), Text(output.text, style="bold"))
    return table
