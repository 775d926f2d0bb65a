"""Drawings of trees for terminals."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text
from rich.tree import Tree as Drawing

from nmt_cli.parsing.trees import Close, Leaf, Open, Tree

_CONSTITUENT, _TAG, _WORD, _LINES = "bold cyan", "dim", "bold", "bright_black"
_INDENT = 4  # columns of rich's guides at each level


class WholeDrawing:
    """A drawing of fixed width, since rich cuts off text beyond the terminal's columns; print it with `soft_wrap`."""

    def __init__(self, root: Drawing, width: int) -> None:
        self.root = root
        self.width = width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self.root, options.update(width=self.width))


def drawn(tree: Tree) -> WholeDrawing:
    """Return the drawing: children below their constituents, words beside their tags."""
    above: list[Drawing] = []
    root = Drawing("", guide_style=_LINES)
    width = 1
    for event in tree.events:
        match event:
            case Open(label):
                name = Text(label, style=_CONSTITUENT)
                width = max(width, _INDENT * len(above) + name.cell_len)
                above.append(above[-1].add(name) if above else root.add(name))
            case Leaf(tag, word):
                leaf = Text.assemble((tag, _TAG), " ", (word, _WORD))
                width = max(width, _INDENT * len(above) + leaf.cell_len)
                (above[-1] if above else root).add(leaf)
            case Close():
                above.pop()
    return WholeDrawing(root.children[0], width)
