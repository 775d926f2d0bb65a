"""EVALB's parameter files: real ones and wrong ones."""

from __future__ import annotations

from dataclasses import replace
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


BARE = Parameters()


@pytest.mark.parametrize(
    ("line", "expected", "ignored"),
    [
        ("MAX_ERROR 10 # ten", BARE, "# ten"),
        ("MAX_ERROR +5", replace(BARE, max_error=5), ""),
        ("CUTOFF_LEN -1", replace(BARE, cutoff_length=-1), ""),
        ("LABELED 1_0", BARE, "_0"),
        ("EQ_LABEL A", BARE, "EQ_LABEL"),
        ("EQ_WORD a b c", BARE, "EQ_WORD"),
        ("EQ_WORD \t a\u00a0b \t c ", replace(BARE, equal_words=frozenset((("a\u00a0b", "c"),))), ""),
        ("EQ_WORD\fa\vb", replace(BARE, equal_words=frozenset((("a", "b"),))), ""),
        ("DELETE_LABEL NP VP", replace(BARE, deleted_labels=frozenset(("NP VP",))), ""),
        ("DEBUG 0", BARE, ""),
        ("DEBUG 1", BARE, "DEBUG 1"),
    ],
)
def test_lines_are_read_as_evalb_reads_them(tmp_path: Path, line: str, expected: Parameters, ignored: str) -> None:
    """Settings that EVALB ignores silently give a note."""
    path = written(tmp_path, f"{line}\n# a comment\n\n")
    notes: list[str] = []
    assert read_parameters(path, notes.append) == expected
    assert len(notes) == bool(ignored)
    assert all(note.startswith(f"{path}:1: ") and ignored in note for note in notes)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("DELETE_LABELS TOP", "Did you mean DELETE_LABEL"),
        ("MAX_ERROR ten", "'ten'"),
        ("MAX_ERROR # 10", "'# 10'"),
        ("LABELED \u0661", "LABELED"),
        ("DELETE_LABEL", "no value"),
        (" MAX_ERROR 10", "' MAX_ERROR 10'"),
    ],
)
def test_an_invalid_line_is_an_error(tmp_path: Path, line: str, complaint: str) -> None:
    path = written(tmp_path, f"# x\n{line}\n")
    with pytest.raises(DataError) as caught:
        read_parameters(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert complaint in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.prm: cannot read"):
        read_parameters(tmp_path / "absent.prm")


def test_equality_is_symmetric_but_not_transitive() -> None:
    parameters = Parameters(equal_labels=frozenset((("A", "B"), ("B", "C"))), deleted_labels=frozenset(("A",)))
    assert parameters.same_label("A", "B")
    assert parameters.same_label("B", "A")
    assert not parameters.same_label("A", "C")
    assert parameters.deletes_bracket("B")
    assert not parameters.deletes_bracket("C")
