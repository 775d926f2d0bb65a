from __future__ import annotations

import pytest
from rich.console import Console

from nmt_cli.parsing.drawing import drawn
from nmt_cli.parsing.trees import line_tree

_LINES = " │├└─"


def test_words_stand_in_order_below_their_constituents() -> None:
    console = Console(width=60)
    with console.capture() as captured:
        console.print(drawn(line_tree("(TOP (S (NP (DT the) (NN [bold])) (VP (VBZ runs))))")))
    lines = captured.get().rstrip("\n").split("\n")
    assert [line.strip(_LINES) for line in lines] == ["TOP", "S", "NP", "DT the", "NN [bold]", "VP", "VBZ runs"]
    depths = [len(line) - len(line.lstrip(_LINES)) for line in lines]
    assert depths == [0, 4, 8, 12, 12, 8, 12]


@pytest.mark.parametrize("depth", [1, 9, 10, 40])
def test_no_word_of_a_deep_tree_is_lost(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    words = [f"word{number}" for number in range(depth)]
    line = "".join(f"(S (NN {word}) " for word in words) + "(VBZ\u00a0Z sleeps\u2009long)" + ")" * depth
    console = Console(highlight=False)
    assert console.width == 40
    with console.capture() as captured:
        console.print(drawn(line_tree(f"(TOP {line})")), soft_wrap=True)
    lines = [line.strip(_LINES) for line in captured.get().split("\n")]
    assert lines == [
        "TOP",
        *(part for word in words for part in ("S", f"NN {word}")),
        "VBZ\u00a0Z sleeps\u2009long",
        "",
    ]
