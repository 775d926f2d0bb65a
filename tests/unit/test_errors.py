"""Values in messages, and torchrun's variables, which a shell or a cluster may leave behind."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch

from nmt_cli.errors import (
    DataError,
    UsageError,
    environment_number,
    main_rank_reports,
    rank_and_size,
    shown,
)

ADDRESS = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", *ADDRESS)


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
        ([1, ("a",)], "[1, ('a',)]"),
        ({"a": [], 2: {}}, "{'a': [], 2: {}}"),
        (KeyError("step"), "KeyError('step')"),
        (torch.zeros(2, 1), "tensor([[0.], [0.]])"),
        (Namespace(a=1), "Namespace(a=1)"),
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
    assert shown(itself) == "{'a': {'a': {'a': {...}}}}"
    for value in (nested, "x" * 10**7, b"x" * 10**7, [0] * 10**6, {i: i for i in range(1000)}):
        assert len(shown(value)) == 60
        assert shown(value, 20) == shown(value)[:17] + "..."


def test_a_number_of_too_many_digits_for_python_is_described() -> None:
    assert shown([10**5000]) == "a value with an integer of thousands of digits"


def set_variables(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, (0, 1)),
        ({"RANK": "", "WORLD_SIZE": ""}, (0, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1)),
        ({"RANK": "2", "WORLD_SIZE": "4", **ADDRESS}, (2, 4)),
    ],
)
def test_rank_and_size(
    variables: dict[str, str], place: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(monkeypatch, **variables)
    assert rank_and_size() == place


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is not a number, but 'two': unset it"),
        ({"RANK": "-1"}, "RANK is not a number, but '-1': unset it"),
        ({"RANK": "9" * 5000}, "RANK is not a number, but '9+..."),
        (
            {"RANK": "1"},
            "RANK is 1 and WORLD_SIZE 1: unset both, or start the command with torchrun",
        ),
        ({"WORLD_SIZE": "0"}, "RANK is 0 and WORLD_SIZE 0: unset both"),
        (
            {"WORLD_SIZE": "2"},
            "WORLD_SIZE is 2 without RANK: unset WORLD_SIZE, or start with torchrun",
        ),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "WORLD_SIZE is 2 without MASTER_ADDR: unset WORLD_SIZE"),
    ],
)
def test_left_behind(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(monkeypatch, **variables)
    with pytest.raises(UsageError, match=message):
        rank_and_size()


@pytest.mark.parametrize("text", ["", "3"])
def test_the_default_is_for_an_empty_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch, LOCAL_RANK=text)
    assert environment_number("LOCAL_RANK", 7) == int(text or 7)


def test_a_lone_process_with_a_rank_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for the report of rank 0, which does not exist."""
    set_variables(monkeypatch, RANK="1")
    with pytest.raises(UsageError, match="RANK is 1"), main_rank_reports():
        raise DataError("a mistake")
