"""Drawings of trees for terminals."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text
from rich.tree import Tree as Drawing

from nmt_cli.annexes.parsing.trees import Close, Leaf, Open, Tree

_CONSTITUENT = "bold cyan"
_TAG = "dim"
_WORD = "bold"
_LINES = "bright_black"


@dataclass(frozen=True)
class WholeDrawing:
    """A drawing of any width, to print with `soft_wrap`."""

    root: Drawing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # By default, rich cuts off text beyond the terminal's columns.
        yield from console.render(self.root, options.update(width=1 << 20))


def drawn(tree: Tree) -> WholeDrawing:
    """Return the drawing: children below their constituents, words beside their tags."""
    above = [Drawing("", guide_style=_LINES)]
    for event in tree.events:
        match event:
            case Open(label):
                above.append(above[-1].add(Text(label, style=_CONSTITUENT)))
            case Leaf(tag, word):
                above[-1].add(Text.assemble((tag, _TAG), " ", (word, _WORD)))
            case Close():
                above.pop()
    return WholeDrawing(above[0].children[0])
