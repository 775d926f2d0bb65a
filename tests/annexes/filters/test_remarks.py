"""Notes of `nmt score` about text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

REFERENCE = [
    "Der Hund läuft schnell über die Wiese.",
    "Er sagte „Ja“ zum U-Bahn-Plan.",
    "Das kostet 5,30 Euro.",
]

Score = Callable[..., tuple[int, str, str]]


@pytest.fixture
def nmt_score(nmt: Score, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Score:
    """Runs `nmt score ARGUMENTS` here, beside a reference."""
    monkeypatch.chdir(tmp_path)
    write("reference", REFERENCE)
    return partial(nmt, "score")


def write(name: str, lines: Sequence[str]) -> None:
    Path(name).write_bytes("".join(f"{line}\n" for line in lines).encode())


@pytest.mark.parametrize(
    ("metric", "noted"),
    [
        ("paper", True),
        ("bleu,codexglue", True),
        ("codexglue", False),
        ("multi-bleu-untokenised", False),
    ],
)
def test_tokenized_text_is_noted(nmt_score: Score, metric: str, noted: bool) -> None:
    write(
        "good",
        ["Der Hund läuft schnell .", "Er sagte &quot; Ja &quot; .", "Das kostet 5,30 Euro ."],
    )
    code, _, err = nmt_score("good", "--ref", "reference", "--metric", metric)
    assert code == 0
    assert ("good looks tokenized (line 1)" in err) == noted


@pytest.mark.parametrize(
    ("line", "metric", "noted"),
    [
        ("der hund", "bleu", True),
        ("der hund", "bleu-lc", False),
        ("Der hund", "bleu", False),
        ("...", "bleu", False),
    ],
)
def test_lower_case_where_the_reference_is_cased_is_noted(
    nmt_score: Score, line: str, metric: str, noted: bool
) -> None:
    write("good", [line] * 3)
    code, _, err = nmt_score("good", "--ref", "reference", "--metric", metric)
    assert code == 0
    assert ("note: good has no upper case" in err) is noted
    write("uncased", ["漢字"] * 3)
    assert (
        "note: good has no upper case"
        not in nmt_score("good", "--ref", "uncased", "--metric", metric)[2]
    )


@pytest.mark.parametrize(
    ("line", "metric", "noted"),
    [
        ("今天天气很好，我们去公园散步。", "bleu,paper", True),
        ("今天天气很好，我们去公园散步。", "sacrebleu-zh,chrf", False),
        ("วันนี้อากาศดีมาก เราไปเดินเล่นที่สวน", "bleu", True),
        ("오늘은 날씨가 아주 좋아서 공원에 갔다.", "bleu", False),
        ("الطقس جميل جدا اليوم.", "bleu", False),
        ("Donaudampfschifffahrtsgesellschaft", "bleu", False),
    ],
)
def test_bleu_of_words_where_there_are_few_spaces_is_noted(
    nmt_score: Score, line: str, metric: str, noted: bool
) -> None:
    write("good", [line] * 3)
    code, _, err = nmt_score("good", "--ref", "good", "--metric", metric)
    assert code == 0
    assert err.count("note: good has few spaces") == noted


@pytest.mark.parametrize(
    ("line", "noted"), [("Ein Hund läuft", True), ("Ein Hund läuft schnell", False)]
)
def test_bleu_without_sequences_of_four_words_is_noted(
    nmt_score: Score, line: str, noted: bool
) -> None:
    write("good", [line] * 3)
    for metric in ("bleu", "bleu,multi-bleu"):
        err = nmt_score("good", "--ref", "good", "--metric", metric)[2]
        assert err.count("note: good has no line of four words") == noted
    assert "note" not in nmt_score("good", "--ref", "good", "--metric", "chrf")[2]
