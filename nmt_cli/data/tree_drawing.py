"""A tree as a person likes to see it: drawn on a terminal."""

from __future__ import annotations

from rich.text import Text
from rich.tree import Tree as Drawing

from nmt_cli.data.trees import Close, Leaf, Open, Tree

_CONSTITUENT, _TAG, _WORD, _LINES = "bold cyan", "dim", "bold", "bright_black"


def drawn(tree: Tree) -> Drawing:
    """Constituents with what they hold below them, and each word beside its tag."""
    above: list[Drawing] = []
    root = Drawing("", guide_style=_LINES)
    for event in tree.events:
        match event:
            case Open(label):
                name = Text(label, style=_CONSTITUENT)
                above.append(above[-1].add(name) if above else root.add(name))
            case Leaf(tag, word):
                (above[-1] if above else root).add(Text.assemble((tag, _TAG), " ", (word, _WORD)))
            case Close():
                above.pop()
    return root.children[0]
