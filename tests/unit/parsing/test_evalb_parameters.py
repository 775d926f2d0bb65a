"""EVALB's parameter files: the real ones, and what is said about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt_cli.errors import DataError
from nmt_cli.parsing.evalb_parameters import COLLINS, Parameters, read_parameters


def written(folder: Path, text: str) -> Path:
    path = folder / "test.prm"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_built_in_settings_are_those_of_the_real_file(shared_data: Path) -> None:
    assert read_parameters(shared_data / "evalb" / "COLLINS.prm") == COLLINS


def test_the_sample_file(shared_data: Path) -> None:
    parameters = read_parameters(shared_data / "evalb" / "sample" / "sample.prm")
    assert parameters.deleted_labels == COLLINS.deleted_labels - {"."}
    assert parameters.equal_labels == {("T", "TT")}
    assert parameters.equal_words == {("This", "this")}


def test_every_parameter(tmp_path: Path) -> None:
    text = (
        "# comment\n\nDEBUG 1\nMAX_ERROR\t3  \nCUTOFF_LEN 70\r\nLABELED 0\nDELETE_LABEL TOP\nDELETE_LABEL S1\n"
        "DELETE_LABEL_FOR_LENGTH -NONE-\nQUOTE_LABEL ''\nEQ_LABEL ADVP PRT\nEQ_WORD  Example   example"
    )
    assert read_parameters(written(tmp_path, text)) == Parameters(
        max_error=3,
        cutoff_length=70,
        labeled=0,
        deleted_labels=frozenset(("TOP", "S1")),
        deleted_for_length=frozenset(("-NONE-",)),
        quote_labels=frozenset(("''",)),
        equal_labels=frozenset((("ADVP", "PRT"),)),
        equal_words=frozenset((("Example", "example"),)),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("DEBUG 0\nDELETE_LABELS TOP\n", ":2: 'DELETE_LABELS' is no parameter of EVALB. Did you mean DELETE_LABEL"),
        ("MAX_ERROR ten\n", ":1: MAX_ERROR takes a whole number, not 'ten'"),
        ("# x\n\nDELETE_LABEL\n", ":3: DELETE_LABEL has no value"),
        (" MAX_ERROR 10\n", ":1: ' MAX_ERROR 10' is no parameter"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read_parameters(path)
    assert str(caught.value).startswith(f"{path}{complaint}")


def test_what_is_passed_over_as_the_original_does_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    path = written(tmp_path, "EQ_LABEL ADVP PRT RP\nDEBUG 1\nDEBUG 0\nMAX_ERROR 3 # three\n")
    assert read_parameters(path, told.append) == Parameters(max_error=3)
    assert told == [
        f"{path}:1: EQ_LABEL takes two values that count as equal, and here are 3: the line is ignored",
        f"{path}:2: DEBUG 1 is ignored: nothing more is printed",
        f"{path}:4: MAX_ERROR is 3; what follows is ignored: # three",
    ]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.prm: cannot read"):
        read_parameters(tmp_path / "absent.prm")


def test_equality_goes_both_ways_and_no_further() -> None:
    parameters = Parameters(equal_labels=frozenset((("A", "B"), ("B", "C"))), deleted_labels=frozenset(("A",)))
    assert parameters.same_label("A", "B")
    assert parameters.same_label("B", "A")
    assert not parameters.same_label("A", "C")
    assert parameters.deletes_bracket("B")
    assert not parameters.deletes_bracket("C")
