"""What a pattern cannot do without."""

from __future__ import annotations

import re

import pytest

from nmt_cli.data.moses_rules import Substitution, needed_text


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        (r"\) ([.!:?;,])", ") "),
        ("([a-z])‘([a-z])", "‘"),
        (r"[\000-\037]", ""),
        (r"[,]([^0-9])", ","),
        (r"(?:DOT)+MULTI", "MULTI"),
        (r"a|b", ""),
        (r"x*y?z", "z"),
        (r"ab*", "a"),
        (r"(ab)?", ""),
    ],
)
def test_needed_text(pattern: str, needed: str) -> None:
    assert needed_text(pattern) == needed


def test_substitutions_are_those_of_re() -> None:
    substitution = Substitution(re.compile(r"(\d) %"))
    assert substitution.sub(r"\g<1>%", "a 5 % b") == "a 5% b"
    assert substitution.sub(r"\g<1>%", "a 5 b") == "a 5 b"
