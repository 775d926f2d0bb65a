"""Bracketing scores, compared with output of the real EVALB."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nmt_cli.annexes.parsing.evalb import score_brackets
from nmt_cli.annexes.parsing.evalb_parameters import COLLINS, Parameters, read_parameters
from nmt_cli.annexes.parsing.evalb_scores import BracketReport, evalb_output, table_row

NEW = replace(
    COLLINS,
    deleted_labels=COLLINS.deleted_labels | {"S1", "?", "!"},
    quote_labels=frozenset(("``", "''", "POS", "NN", "CD", "VBZ", ":")),
)
"""EVALB's file new.prm, which uses QUOTE_LABEL."""


def lines_of(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")


def scored(folder: Path, name: str, parameters: str) -> BracketReport:
    test, gold = lines_of(folder / f"{name}.tst"), lines_of(folder / f"{name}.gld")
    return score_brackets(test, gold, read_parameters(folder / parameters))


def row(test: str, gold: str, parameters: Parameters = COLLINS) -> str:
    """The table's line for one pair, without its number."""
    return " ".join(table_row(score_brackets([test], [gold], parameters).rows[0]).split()[1:])


@pytest.mark.parametrize("name", ["SHARE_craftdev", "SHARE_craftdev_err"])
@pytest.mark.parametrize(
    ("settings_file", "result"),
    [
        ("COLLINS.prm", "COLLINS"),
        ("COLLINS.noabort.prm", "COLLINS.noabort"),
        ("COLLINS.noabort.prm", "nk"),
    ],
)
def test_equals_the_real_program(
    shared_data: Path, name: str, settings_file: str, result: str
) -> None:
    folder = shared_data / "evalb"
    expected = (folder / f"{name}.{result}.rsl").read_bytes().decode("utf-8")
    assert evalb_output(scored(folder, name, settings_file)) == expected


def test_equals_the_official_sample(shared_data: Path) -> None:
    """The sample was printed by an older EVALB. Nothing else may differ.

    It has no F-measure, has words of sentences in error, and counts sentences where the new one
    totals crossing brackets.
    """
    folder = shared_data / "evalb" / "sample"
    our_lines = evalb_output(scored(folder, "sample", "sample.prm")).split("\n")
    their_lines = (folder / "sample.rsl").read_text("utf-8").split("\n")
    our_lines = [line for line in our_lines if "FMeasure" not in line]
    differences = [
        (one.split(), other.split())
        for one, other in zip(our_lines, their_lines, strict=True)
        if one != other
    ]
    for one, other in differences[:-1]:
        assert one[2] in "12"
        assert (one[9], other[9]) == ("0", "4")
        assert one[:9] + one[10:] == other[:9] + other[10:]
    total, older = differences[-1]
    assert (total[5], older[5]) == ("1", "16")
    assert total[:5] + total[6:] == older[:5] + older[6:]


# What the real program (the version with the F-measure, compiled with gcc on x86-64) printed for
# each pair.
ODD_LINES = [
    ("(S (A a) (B b)))", "(S (A a) (B b))", "2 1 100.00 100.00 1 1 1 0 2 2 100.00"),
    ("(S (NP (A a)) (B b)", "(S (NP (A a)) (B b))", "2 1 50.00 50.00 1 2 2 0 2 2 100.00"),
    ("(S (NP (A a)) (B b)", "(S (NP (A a)) (B b)", "2 1 100.00 100.00 2 2 2 0 2 2 100.00"),
    ("", "(S (NP (A a)) (B b))", "2 2 0.00 0.00 0 0 0 0 0 0 0.00"),
    ("(X (A a) (B b))", "", "0 1 0.00 0.00 0 0 0 0 0 0 0.00"),
    ("", "", "0 2 0.00 0.00 0 0 0 0 0 0 0.00"),
    ("(())", "(())", "0 2 0.00 0.00 0 0 0 0 0 0 0.00"),
    ("(TOP (. .))", "(TOP (. .))", "1 2 0.00 0.00 0 0 0 0 0 0 0.00"),
    ("(S ( ))", "(S ( ))", "1 0 100.00 100.00 1 1 1 0 1 1 100.00"),
    ("(S (NN ))", "(S (NN ))", "1 0 100.00 100.00 1 1 1 0 1 1 100.00"),
    ("((S (A a)))", "((S (A a)))", "1 0 100.00 100.00 2 2 2 0 1 1 100.00"),
    ("(P this) (Q is)", "(S (P this) (Q is))", "2 0 0.00 0.00 0 1 0 0 2 2 100.00"),
]


@pytest.mark.parametrize(("test", "gold", "expected"), ODD_LINES)
def test_odd_lines(test: str, gold: str, expected: str) -> None:
    assert row(test, gold) == expected


def test_output_without_brackets_to_divide_by() -> None:
    report = score_brackets(["(X (A a))"], ["(S (A a))"], COLLINS)
    assert evalb_output(report).count("Bracketing FMeasure       =   -nan\n") == 2
    assert report.everything["f1"] == 0
    assert (
        evalb_output(score_brackets([""], [""], COLLINS)).split("\n")[5] == "      0     0     0.00"
    )


@pytest.mark.parametrize(
    ("test", "gold", "matched"),
    [
        # A chain of equal brackets counts each.
        (
            "(S (NP (NP (A a))) (B b))",
            "(S (NP (NP (A a))) (B b))",
            "3 3 3",
        ),
        ("(S (NP (NP (A a))) (B b))", "(S (NP (A a)) (B b))", "2 2 3"),
        ("(S (ADVP (A a)) (B b))", "(S (PRT (A a)) (B b))", "2 2 2"),  # EQ_LABEL
        ("(S (NP-SBJ-1 (A a)) (B b))", "(S (NP=2 (A a)) (B b))", "2 2 2"),  # functional tags
        ("(TOP (S (A a)))", "(S (TOP (A a)))", "1 1 1"),  # TOP does not count
        ("( (S (A a)))", "(TOP (S (A a)))", "1 1 2"),  # an unlabelled wrapper does
        ("(S (NP (-NONE- *)) (A a))", "(S (A a))", "1 1 1"),  # a bracket around no word does not
        ("(S (A a) (. .))", "(S (A a) (. ?))", "1 1 1"),  # deleted words are not compared
    ],
)
def test_brackets_that_count(test: str, gold: str, matched: str) -> None:
    assert " ".join(row(test, gold).split()[4:7]) == matched


def test_without_labels_each_bracket_matches_one_of_the_same_span() -> None:
    """Gold has brackets at 0-3, 0-2 and 0-2 again, test at 0-3, 0-2 and 1-2.

    TOP is deleted either way.
    """
    gold = "(TOP (S (NP (NP (A a) (B b))) (C c)))"
    test = "(TOP (S (VP (A a) (X (B b))) (C c)))"
    assert row(test, gold, COLLINS) == "3 0 33.33 33.33 1 3 3 0 3 3 100.00"
    assert row(test, gold, replace(COLLINS, labeled=0)) == "3 0 66.67 66.67 2 3 3 0 3 3 100.00"


def test_tags_are_compared_whole() -> None:
    assert row("(S (NN-X a) (PRT b))", "(S (NN a) (ADVP b))").split()[8:10] == ["2", "1"]


QUOTES = replace(
    COLLINS, deleted_for_length=frozenset(("''",)), quote_labels=frozenset(("''", "POS"))
)
ONE = "(S1 (S (NP (DT the) (NNS dogs) ({} ')) (VP (VBP bark))))"
TWO = "(S1 (S ({} ') (NP (DT the) (NNS dogs) ({} ')) (VP (VBP bark)) ('' ')))"


@pytest.mark.parametrize(
    ("test", "gold", "parameters", "expected"),
    [
        # Lengths differ: an error.
        (
            ONE.format("POS"),
            ONE.format("''"),
            COLLINS,
            "4 1 0.00 0.00 0 0 0 0 0 0 0.00",
        ),
        (ONE.format("POS"), ONE.format("''"), NEW, "4 0 100.00 100.00 3 3 3 0 4 3 75.00"),
        (ONE.format("''"), ONE.format("POS"), NEW, "4 0 100.00 100.00 3 3 3 0 4 3 75.00"),
        (
            TWO.format("POS", "POS"),
            TWO.format("''", "''"),
            NEW,
            "6 0 100.00 100.00 3 3 3 0 5 3 60.00",
        ),
        (
            TWO.format("''", "''"),
            TWO.format("POS", "POS"),
            NEW,
            "6 0 100.00 100.00 3 3 3 0 5 3 60.00",
        ),
        # EVALB restores one of two neighbouring quotes twice
        (
            "(S (POS ') (POS \") (X a))",
            "(S ('' ') (POS \") (X a))",
            NEW,
            "3 1 0.00 0.00 0 0 0 0 0 0 0.00",
        ),
        # deleted for the length, too, which is gold's without the restored quote
        (ONE.format("POS"), ONE.format("''"), QUOTES, "3 0 100.00 100.00 4 4 4 0 4 3 75.00"),
        (ONE.format("''"), ONE.format("POS"), QUOTES, "4 0 100.00 100.00 4 4 4 0 4 3 75.00"),
    ],
)
def test_quotes_are_restored(test: str, gold: str, parameters: Parameters, expected: str) -> None:
    """A quote deleted in one tree only is restored.

    Brackets and later quotes move. The figures for NEW are EVALB's.
    """
    assert row(test, gold, parameters) == expected


def test_the_cut_off_is_by_gold_words_that_count_for_the_length() -> None:
    """A trace is not counted. The full stop is, although it is deleted from the comparison."""
    gold = ["(S (NP (A a)) (B b))", "(S (NP (A a) (B b)) (. .))", "(S (NP (A a) (-NONE- *)) (B b))"]
    test = ["(S (NP (A a)) (B b))", "(S (NP (A a) (B b)) (. .))", "(S (A a) (B b))"]
    report = score_brackets(test, gold, replace(COLLINS, cutoff_length=2))
    assert [r.length for r in report.rows] == [2, 3, 2]
    short, everything = report.short, report.everything
    assert (short["sentences"], short["recall"], short["precision"], short["complete_match"]) == (
        2,
        75,
        100,
        50,
    )
    assert (everything["sentences"], everything["precision"]) == (3, 100)
    assert everything["f1"] == pytest.approx(2 * (500 / 6) * 100 / (500 / 6 + 100))


def test_strict_scores_count_what_is_excluded() -> None:
    gold = ["(S (NP (A a)) (B b))", "(S (NP (A a)) (B b))", "(S (NP (A a)) (B b))"]
    report = score_brackets([gold[0], "", "(S (A a))"], gold, COLLINS)
    everything, strict = report.everything, report.strict
    assert (everything["recall"], everything["precision"], everything["valid_sentences"]) == (
        100,
        100,
        1,
    )
    assert (everything["error_sentences"], everything["skipped_sentences"]) == (1, 1)
    assert (strict["matched_brackets"], strict["gold_brackets"], strict["test_brackets"]) == (
        2,
        6,
        3,
    )
    assert (strict["complete_match"], strict["valid_sentences"]) == (pytest.approx(100 / 3), 3)
    assert strict["f1"] == pytest.approx(400 / 9)


def test_an_excluded_sentence_is_no_complete_match() -> None:
    """Also if no bracket counts in either tree, so that 0 of 0 match."""
    report = score_brackets(["(TOP (A b))", "(S (A a))"], ["(TOP (A a))", "(S (A a))"], COLLINS)
    assert (report.everything["complete_match"], report.strict["complete_match"]) == (100, 50)


@pytest.mark.parametrize(
    ("test", "gold", "wrong", "message"),
    [
        ("(S (A a))", "(S (A a)", "gold", "1 closing brackets are missing"),
        ("(S (A a)))", "(S (A a))", "test", "1 surplus closing brackets"),
        ("(S (A a))", "(S a (A a))", "gold", "'a (A a))'"),
        ("(S (A b))", "(S (A a))", "test", "words unmatch: gold has a, test has b"),
        (
            "(S (A a) (NN .))",
            "(S (A a) (. .))",
            "test",
            "length unmatch: gold has 1 words, test has 2",
        ),
    ],
)
def test_problems_name_the_file_in_error(test: str, gold: str, wrong: str, message: str) -> None:
    report = score_brackets([test, gold], [gold, gold], COLLINS)
    problem = report.problems[0]
    assert (problem.line, problem.tree) == (1, wrong)
    assert message in problem.message
    assert report.rows[0].status == 1


def test_sentences_without_any_limit() -> None:
    """The original crashes above 200 words."""
    words = 20_000
    deep = "(S " * words + "(A a)" + ")" * words
    long = "(S " + "(A a)" * words + ")"
    report = score_brackets([deep, long], [deep, long], COLLINS)
    assert [r.matched for r in report.rows] == [words, 1]
    assert report.everything["valid_sentences"] == 2
