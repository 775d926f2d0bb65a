"""EVALB's parameter files: real ones and wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt_cli.annexes.parsing.evalb_parameters import COLLINS, Parameters, read_parameters
from nmt_cli.errors import DataError


def written(folder: Path, text: str) -> Path:
    path = folder / "test.prm"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_built_in_settings_are_those_of_the_real_file(shared_data: Path) -> None:
    assert read_parameters(shared_data / "evalb" / "COLLINS.prm") == COLLINS


def test_every_parameter(tmp_path: Path) -> None:
    text = (
        "# comment\n\nDEBUG 1\nMAX_ERROR\t3  \nCUTOFF_LEN -1\r\nLABELED 0\nDELETE_LABEL "
        "TOP\nDELETE_LABEL S1\n"
        "DELETE_LABEL_FOR_LENGTH -NONE-\nQUOTE_LABEL ''\nEQ_LABEL ADVP PRT\nEQ_WORD  a\u00a0b   c"
    )
    assert read_parameters(written(tmp_path, text)) == Parameters(
        max_error=3,
        cutoff_length=-1,
        labeled=0,
        deleted_labels=frozenset(("TOP", "S1")),
        deleted_for_length=frozenset(("-NONE-",)),
        quote_labels=frozenset(("''",)),
        equal_labels=frozenset((("ADVP", "PRT"),)),
        equal_words=frozenset((("a\u00a0b", "c"),)),
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("DELETE_LABELS TOP", "Did you mean DELETE_LABEL"),
        ("MAX_ERROR ten", "'ten'"),
        ("MAX_ERROR 10 # ten", "1 value, not 3"),
        ("DELETE_LABEL", "1 value, not 0"),
        ("EQ_LABEL A", "2 values, not 1"),
    ],
)
def test_an_invalid_line_is_an_error(tmp_path: Path, line: str, complaint: str) -> None:
    path = written(tmp_path, f"# x\n{line}\n")
    with pytest.raises(DataError) as caught:
        read_parameters(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert complaint in str(caught.value)


def test_equality_is_symmetric_but_not_transitive() -> None:
    parameters = Parameters(
        equal_labels=frozenset((("A", "B"), ("B", "C"))), deleted_labels=frozenset(("A",))
    )
    assert parameters.same_label("A", "B")
    assert parameters.same_label("B", "A")
    assert not parameters.same_label("A", "C")
    assert parameters.deletes_bracket("B")
    assert not parameters.deletes_bracket("C")
