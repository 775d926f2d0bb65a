"""The chain of what goes around a translation: its order, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from nmt_cli.decoding.around import Around, Chain, flags_of
from nmt_cli.decoding.outputs import Output, Translation
from nmt_cli.errors import UsageError
from nmt_cli.registry import option


class Bracket(Around):
    """Divides a line after each of its signs, and writes brackets around the parts' outputs."""

    def __init__(self, sign: str, order: int, **attributes: Any) -> None:
        self.sign, self.order, self.name = sign, order, f"--{sign}"
        vars(self).update(attributes)

    def read(self, line: str) -> tuple[list[str], Any]:
        return line.split(self.sign), len(line)

    def revise(self, batch: Any, outputs: list[list[Output]]) -> list[list[Output]]:
        return [
            [replace(output, text=output.text + self.sign) for output in row] for row in outputs
        ]

    def write(self, line: str, translations: Sequence[Translation], note: Any) -> Translation:
        assert note == len(line)
        return translation(line, f"({self.sign.join(part.text for part in translations)})")


class Merging(Bracket):
    def joined(self, inner: Around) -> Around | None:
        return Merging(self.sign + inner.sign, self.order) if isinstance(inner, Merging) else None


def translation(source: str, text: str) -> Translation:
    return Translation(source, [Output(text, 0.0, [], [])], 1, truncated=False)


def test_the_outermost_reads_first_and_writes_last() -> None:
    chain = Chain([Bracket("/", 2), Bracket(";", 1)])
    texts, layers = chain.read("a/b;c")
    assert texts == ["a", "b", "c"]
    written = chain.write([translation(text, text.upper()) for text in texts], layers)
    assert (written.source, written.text) == ("a/b;c", "((A/B);(C))")
    assert chain.revise([], [[Output("a", 0.0, [], [])]])[0][0].text == "a/;"


def test_nothing_around_a_line_is_the_line() -> None:
    texts, layers = Chain().read("a")
    assert (texts, Chain().write([translation("a", "b")], layers).text) == (["a"], "b")
    around = Around()
    assert around.read("a") == (["a"], None)
    assert around.write("a", [translation("a", "b")], None).text == "b"


def test_neighbours_of_one_kind_may_become_one() -> None:
    chain = Chain([Merging("a", 3), Bracket("b", 2), Merging("c", 3)])
    assert [around.name for around in chain.arounds] == ["--b", "--a, --c"]
    assert chain.arounds[1].sign == "ac"  # type: ignore[attr-defined]


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(UsageError, match="--x cannot be used with --y"):
        Chain([Bracket("x", 5, aligns_words=True), Bracket("y", 1, changes_words=True)])
    with pytest.raises(UsageError, match="--y cannot be used with prefixes"):
        Chain([Bracket("x", 1, takes_prefix=True), Bracket("y", 2)]).check_prefix()
    Chain([Bracket("x", 1, takes_prefix=True)]).check_prefix()
    assert Chain([Around(), Bracket("x", 1, allows_unknown=True)]).allows_unknown
    assert not Chain([Around()]).allows_unknown


@dataclass(frozen=True)
class SignConfig:
    first_sign: str | None = option(None, "A sign.")
    second: int = option(2, "Another.")
    third: bool = False


def test_messages_name_the_flags_that_were_given() -> None:
    assert flags_of(SignConfig("x")) == "--first-sign"
    assert flags_of(SignConfig(third=True)) == "--first-sign, --second"
