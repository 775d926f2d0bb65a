from __future__ import annotations

from rich.console import Console

from nmt_cli.data.tree_drawing import drawn
from nmt_cli.data.tree_symbols import line_tree

_LINES = " │├└─"


def test_words_stand_in_order_below_their_constituents() -> None:
    console = Console(width=60)
    with console.capture() as captured:
        console.print(drawn(line_tree("(TOP (S (NP (DT the) (NN [bold])) (VP (VBZ runs))))")))
    lines = captured.get().rstrip("\n").split("\n")
    assert [line.strip(_LINES) for line in lines] == ["TOP", "S", "NP", "DT the", "NN [bold]", "VP", "VBZ runs"]
    depths = [len(line) - len(line.lstrip(_LINES)) for line in lines]
    assert depths == [0, 4, 8, 12, 12, 8, 12]
