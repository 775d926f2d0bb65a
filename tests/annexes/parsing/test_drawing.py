from __future__ import annotations

from rich.console import Console

from nmt_cli.annexes.parsing.drawing import drawn
from nmt_cli.annexes.parsing.trees import line_tree

_LINES = " │├└─"


def drawing(line: str) -> list[str]:
    console = Console(width=40, highlight=False)
    with console.capture() as captured:
        console.print(drawn(line_tree(line)), soft_wrap=True)
    return captured.get().rstrip("\n").split("\n")


def test_words_stand_in_order_below_their_constituents() -> None:
    lines = drawing("(TOP (S (NP (DT the) (NN [bold])) (VP (VBZ runs))))")
    assert [line.strip(_LINES) for line in lines] == [
        "TOP",
        "S",
        "NP",
        "DT the",
        "NN [bold]",
        "VP",
        "VBZ runs",
    ]
    depths = [len(line) - len(line.lstrip(_LINES)) for line in lines]
    assert depths == [0, 4, 8, 12, 12, 8, 12]
