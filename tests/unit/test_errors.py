"""Values in messages."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch

from nmt_cli.errors import shown


class Unprintable:
    def __repr__(self) -> str:
        raise AssertionError("must not be called")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("de", "'de'"),
        ("a\nb\x1b[2J\u202e", r"'a\nb\x1b[2J\u202e'"),
        (b"\x00", r"b'\x00'"),
        (None, "None"),
        (True, "True"),
        (0.1, "0.1"),
        (-7, "-7"),
        ([1, ("a",)], "[1, ['a']]"),
        ({"a": [], 2: {}}, "{'a': [], 2: {}}"),
        (KeyError("step"), "KeyError['step']"),
        (torch.zeros(2, 2), "<Tensor>"),
        (Namespace(a=1), "<Namespace>"),
        ([Unprintable()], "[<Unprintable>]"),
    ],
)
def test_a_value_is_shown_on_one_line(value: object, expected: str) -> None:
    assert shown(value) == expected


def test_only_the_beginning_of_a_long_value_is_read() -> None:
    nested: list[object] = []
    for _ in range(40):
        nested = [nested] * 9  # 9^40 lists
    itself: dict[str, object] = {}
    itself["a"] = itself
    for value in (nested, itself, "x" * 10**7, b"x" * 10**7, [0] * 10**6, {i: i for i in range(1000)}):
        assert len(shown(value)) == 60
        assert shown(value, 20) == shown(value)[:17] + "..."


def test_a_number_of_too_many_digits_for_python_is_counted() -> None:
    assert shown([10**5000]) == "[an integer of 16,610 bits]"
