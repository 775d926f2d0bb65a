"""Files of settings, and the traps of YAML."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.errors import UsageError
from nmt_cli.files.settings import read_settings

numbers = st.floats(allow_nan=False, allow_infinity=False)
plain = st.one_of(st.none(), st.booleans(), st.integers(), numbers)


def read(folder: Path, text: str, name: str = "c.yaml") -> Any:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_settings(path)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-4", 1e-4), ("-1E5", -1e5), (".5", 0.5), ("3.", 3.0), ("12", 12), ("-0", 0),
        ("true", True), ("False", False), ("~", None), ("", None), ("no", "no"), ("on", "on"),
        ("y", "y"), ("1:30", "1:30"), ("010", "010"), ("1_000", "1_000"),
        ("2026-11-24", "2026-11-24"), ("10m", "10m"), (".inf", ".inf"), ("1e", "1e"), (".", "."),
        ("'12'", "12"), ("[de, 1e-4]", ["de", 1e-4]), ("{no: no}", {"no": "no"}),
    ],
)  # fmt: skip
def test_words_of_yaml_are_those_of_version_1_2(tmp_path: Path, written: str, value: Any) -> None:
    value_read = read(tmp_path, f"name: {written}\n")["name"]
    assert (value_read, type(value_read)) == (value, type(value))


@given(value=plain)
def test_numbers_are_those_of_json(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    written = json.dumps({"name": value})
    value_read = read(tmp_path_factory.mktemp("yaml"), f"name: {json.dumps(value)}")
    assert value_read == json.loads(written)
    assert type(value_read["name"]) is type(value)


def test_forms(tmp_path: Path) -> None:
    assert read(tmp_path, "# nothing\n") == {}
    assert (
        read(tmp_path, "a: 1\n", "c.yml")
        == read(tmp_path, "a = 1\n", "c.toml")
        == read(tmp_path, '{"a": 1}', "c")
    )
    assert (
        read(tmp_path, "a = 1e-4", "c.toml")
        == tomllib.loads("a = 1e-4")
        == read(tmp_path, "a: 1e-4")
    )


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is there twice"),
        ("a:\n  b: 1\n  b: 1\n", 3, "'b' is there twice"),
        ("a: &x [1]\nb: [*x, *x]\n", 2, "*'x' is an alias"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, "*'x' is an alias"),
        ("- a\n", 1, "expected `name: value`"),
        ("# text\n\nonly words\n", 3, "expected `name: value`"),
        ("a: 1\n--- \nb: 1\n", 2, "another document"),
        ("a: 1\nb: [1\n", 3, "expected ',' or ']'"),
        ("a: 1\nb: !!python/name:os.system x\n", 2, "python/name"),
        ("? [1, 2]\n: 3\n", 1, "unhashable"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, line: int, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(
        f"{tmp_path / 'c.yaml'}: cannot be read as YAML: line {line}: "
    )
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "text", ["a: \x01", "a: " + "[" * 100_000, "a: !!int x", "a: !!bool maybe", "a: !!timestamp x"]
)
def test_what_yaml_cannot_read_is_an_error_in_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"c\.yaml: cannot be read as YAML") as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["c.toml", "c.yaml", "c.json"])
def test_a_byte_order_mark_and_carriage_returns_are_no_content(tmp_path: Path, name: str) -> None:
    lines = {
        "c.toml": ["a = 1", "b = 'x'"],
        "c.yaml": ["a: 1", "b: x"],
        "c.json": ['{"a": 1,', '"b": "x"}'],
    }[name]
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*lines, ""]).encode())
    assert read_settings(tmp_path / name) == {"a": 1, "b": "x"}


def test_json_names_what_is_there_twice(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"c\.json: .*'a' is there twice"):
        read(tmp_path, '{"b": {"a": 1, "a": 2}}', "c.json")


def test_keys_of_many_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="line 2: more than 100 dots"):
        read(tmp_path, f"a = 0.1\n{'a.' * 20_000}a = 1\n", "c.toml")
    assert read(tmp_path, f"a = [{'0.1, ' * 90}]", "c.toml") == {"a": [0.1] * 90}


def test_large_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is this the right file"):
        read(tmp_path, "# " + "x" * (1 << 20))
