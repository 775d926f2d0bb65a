"""Filters of training pairs, and the sample of the pairs dropped."""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prepare_command import run

from nmt_cli.annexes.filters.filters import FilterConfig, Filters, low_scores
from nmt_cli.annexes.search.score_targets import format_score
from nmt_cli.commands.prepare_text import Cleaning, CleaningOptions, Part
from nmt_cli.decoding.outputs import TargetScore
from nmt_cli.errors import DataError, UsageError
from nmt_cli.files import parallel_text
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask


def write(prefix: Path, pairs: list[tuple[str, str]]) -> None:
    for side, language in enumerate(("en", "de")):
        content = "".join(f"{pair[side]}\n" for pair in pairs).encode()
        prefix.with_name(f"{prefix.name}.{language}").write_bytes(content)


def drops(source: str, target: str, watched: set[str] | None = None, **options: Any) -> list[str]:
    """The reasons of the filters that drop a pair."""
    return [
        reason
        for reason, drop in Filters(FilterConfig(**options)).tests(watched or set())
        if drop(source, target)
    ]


def test_there_is_no_filter_by_default() -> None:
    assert Filters(FilterConfig()).tests({"a"}) == []


def test_a_match_on_either_side_drops() -> None:
    patterns = {"drop_matching": (r"https?://", r"\bfoo\b")}
    for pair in (("see http://a.b", "x"), ("x", "foo"), ("foo", "foo")):
        assert drops(*pair, **patterns) == ["pattern"]
    assert drops("food", "http:", **patterns) == []


def test_a_held_out_source_drops_and_a_held_out_target_does_not() -> None:
    assert drops("a", "b", {"a"}, drop_held_out=True) == ["held-out source"]
    assert drops("b", "a", {"a"}, drop_held_out=True) == []
    assert drops("a\u00a0 b ", "c", {"a b"}, drop_held_out=True) == ["held-out source"]


@given(st.text("abzéßñжизньλόγος .1-", max_size=12))
def test_scripts_agree_with_the_names_of_the_letters(line: str) -> None:
    names = [unicodedata.name(letter).split()[0] for letter in line if letter.isalpha()]
    for code, name in (("Latn", "LATIN"), ("Cyrl", "CYRILLIC"), ("Grek", "GREEK")):
        foreign = sum(other != name for other in names)
        expected = ["script"] if 2 * foreign > len(names) else []
        assert drops(line, "", scripts=f"{code},Latn") == expected
        assert drops("", line, scripts=f"Latn,{code}") == expected


def test_several_scripts_and_marks_that_belong_to_two() -> None:
    line = "コーヒーを飲む"
    assert drops("coffee", line, scripts="Latn,Hani+Hira+Kana") == []
    assert drops("coffee", line, scripts="Latn,Hani") == ["script"]
    assert drops("2 + 2 = 4", "हिन्दी में", scripts="Cyrl,Deva") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop_matching": ("ok", "(a")}, r"--drop-matching \(a: missing \)"),
        ({"scripts": "Latn"}, "--scripts Latn: expected a name for each side"),
        ({"scripts": "Latn,Latin1"}, "--scripts Latin1: unknown property value"),
        ({"scripts": "Latn,"}, "--scripts Latn,: expected a name for each side"),
        ({"identify_languages": "en,de,fr"}, "--identify-languages en,de,fr: expected"),
    ],
)
def test_filters_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Filters(FilterConfig(**options)).tests(set())


def test_languages() -> None:
    pytest.importorskip("py3langid")
    english = "The dog runs across the street."
    german = "Der Hund läuft über die Straße."
    french = "Le chien traverse la rue."
    ((reason, drop),) = Filters(FilterConfig(identify_languages="en,de")).tests(set())
    assert reason == "language"
    good = [(english, german), ("42.", "42."), ("Tom", "Tom"), ("3 × 5 = 15", german)]
    bad = [(german, english), (english, english), (english, french), (french, german)]
    assert [drop(*pair) for pair in [*good, *bad]] == [False] * len(good) + [True] * len(bad)
    with pytest.raises(UsageError, match=r"'eng' is none of .* en, "):
        Filters(FilterConfig(identify_languages="de,eng")).tests(set())


def test_the_identifier_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(UsageError, match=r"pip install 'nmt-cli\[language-id\]'"):
        Filters(FilterConfig(identify_languages="en,de")).tests(set())


def test_scores_are_numbers_or_sums_per_token(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_text("-1\n-1.5\n1e3\n-inf\n")
    scored = [
        TargetScore("x", "a b", ["a", "b"], [-1.0, -2.0, 0.0], False, False),
        TargetScore("x", "", [], [-2.0], False, False),
    ]
    with gzip.open(tmp_path / "scored.gz", "wt") as file:
        file.writelines(format_score(score, True) for score in scored)
    files = [str(tmp_path / "numbers"), str(tmp_path / "scored.gz")]
    assert low_scores(files, -1.0, 6).tolist() == [False, True, False, True, False, True]
    for pairs in (5, 7):
        with pytest.raises(DataError, match=f"numbers .*scored.gz: 6 scores for {pairs} pairs"):
            low_scores(files, -1.0, pairs)


@pytest.mark.parametrize("line", ["", "x", "nan", "-1\tzwei", "-1\t0\t", "-1 2"])
def test_a_line_that_is_no_score(tmp_path: Path, line: str) -> None:
    (tmp_path / "scores").write_text(f"-1\n{line}\n")
    with pytest.raises(DataError, match=r"scores:2: .*nmt score-targets"):
        low_scores([str(tmp_path / "scores")], 0.0, 2)


WORDS = st.text("abc", min_size=1, max_size=2)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(WORDS, WORDS, st.integers(-3, 0)), min_size=1, max_size=20),
    st.sampled_from(["pair", "source", "target", None]),
    st.sets(WORDS, max_size=3),
)
def test_what_is_dropped_agrees_with_a_loop(
    rows: list[tuple[str, str, int]], unique: str | None, watched: set[str]
) -> None:
    """Reasons in order: the filters, the score, and an earlier pair that is kept."""
    seen, expected = set(), []
    for source, target, score in rows:
        key = {"pair": (source, target), "source": source, "target": target, None: object()}[unique]
        reason = (
            "held-out source"
            if source in watched
            else "pattern"
            if "cc" in (source, target)
            else None
        )
        reason = reason or ("low score" if score < -1 else "duplicate" if key in seen else None)
        expected.append(reason)
        if reason is None:
            seen.add(key)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(
            folder / "train", [("a" * 99, "b"), *((source, target) for source, target, _ in rows)]
        )
        (folder / "scores").write_text("0\n" + "".join(f"{score}\n" for *_, score in rows))
        options = CleaningOptions(keep_duplicates=unique is None, unique=unique or "pair")
        config = FilterConfig(
            drop_held_out=True,
            drop_matching=("^cc$",),
            scores=(str(folder / "scores"),),
            min_score=-1,
            dropped=folder / "dropped.tsv",
        )
        task = TranslationTask(TranslationConfig("en", "de"))
        parts = [Part(str(folder / "train"))]
        if all(expected):
            with pytest.raises(DataError, match=rf"all {len(rows) + 1} pairs were dropped: .*"):
                Cleaning(task, parts, 1, options, [Filters(config)]).read(watched, 1)
        else:
            text = Cleaning(task, parts, 1, options, [Filters(config)]).read(watched, 1).train
            assert text.mask.tolist() == [False, *(reason is None for reason in expected)]
            assert text.dropped == Counter(["length ratio", *filter(None, expected)])
        rows_of = [("a" * 99, "b"), *((source, target) for source, target, _ in rows)]
        dropped = [
            (reason, n, *rows_of[n - 1])
            for n, reason in enumerate(["length ratio", *expected], 1)
            if reason
        ]
        lines = [
            f"{folder}/train.en:{n}\t{reason}\t{source}\t{target}\n"
            for reason, n, source, target in sorted(dropped)
        ]
        assert (folder / "dropped.tsv").read_text() == "".join(lines)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    pairs = [
        (f"the dog {'runs ' * (number % 7)}{number}", f"der Hund {number}\t!")
        for number in range(600)
    ]
    write(tmp_path / "a", [*pairs[:300], *pairs[:250]])
    write(tmp_path / "b", [("жук", "Käfer"), *pairs[300:], ("http://a.b/c", "Link")])
    write(tmp_path / "valid", [("the dog 7", "anders"), ("neu", "neu")])
    (tmp_path / "scores.a").write_text("".join(f"{-number}\n" for number in range(550)))
    (tmp_path / "scores.b").write_text("0\n" * 302)
    return tmp_path


def arguments(folder: Path, *more: str, out: str = "data") -> list[str]:
    return [
        *(
            *"prepare --source-lang en --target-lang de --vocab-size 60 --train".split(),
            str(folder / "a"),
        ),
        *(
            "--train",
            str(folder / "b"),
            "--valid",
            str(folder / "valid"),
            "--out",
            str(folder / out),
            *more,
        ),
    ]


def scores(folder: Path) -> list[str]:
    return [
        "--scores",
        str(folder / "scores.a"),
        "--scores",
        str(folder / "scores.b"),
        "--min-score",
        "-500",
    ]


def test_any_number_of_workers_gives_the_same_bytes(
    text: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    more = [*scores(text), "--drop-held-out", "--scripts", "Latn,Latn", "--drop-matching", "http"]
    outputs = []
    for workers, block in (("1", 2000), ("1", 7), ("3", 13)):
        monkeypatch.setattr(parallel_text, "BLOCK", block)
        sample = [
            "--workers",
            workers,
            "--dropped",
            str(text / f"{workers}-{block}.tsv.gz"),
            "--overwrite",
        ]
        assert run(arguments(text, *more, *sample)) == 0
        files = {
            path.name: path.read_bytes()
            for path in sorted((text / "data").rglob("*"))
            if path.is_file()
        }
        outputs.append((files, gzip.decompress((text / f"{workers}-{block}.tsv.gz").read_bytes())))
    assert outputs[0] == outputs[1] == outputs[2]

    manifest = json.loads(outputs[0][0]["manifest.json"])
    expected = {"duplicate": 200, "held-out source": 2, "low score": 49, "pattern": 1, "script": 1}
    assert manifest["splits"]["train"]["dropped"] == expected
    assert [entry["file"] for entry in manifest["inputs"] if entry["split"] == "scores"] == [
        str(text / "scores.a"),
        str(text / "scores.b"),
    ]
    table = capfd.readouterr().err
    for reason, count in expected.items():
        assert re.search(rf"dropped: {reason} +{count} +0\n", table)

    rows = [line.split("\t") for line in outputs[0][1].decode().splitlines()]
    assert Counter(row[1] for row in rows) == expected | {"duplicate": 100}
    places = [int(row[0].rpartition(":")[2]) for row in rows if row[1] == "duplicate"]
    assert (places[0], places[-1]) == (301, 501)
    assert set(np.diff(places)) == {2, 3}
    for place, _, source, target in rows:
        name, _, number = place.rpartition(":")
        lines = [
            Path(name).with_suffix(end).read_text().split("\n")[int(number) - 1]
            for end in (".en", ".de")
        ]
        assert [source, target] == [lines[0], lines[1].replace("\t", " ")]


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--min-score", "1"], 2, "--scores and --min-score need each other"),
        (["--scores", "scores.a"], 2, "--scores and --min-score need each other"),
        (["--scores", "scores.a", "--min-score", "1"], 1, "scores.a: 550 scores for 852 pairs"),
        (["--scores", "nowhere", "--min-score", "1"], 1, "nowhere"),
        (
            ["--keep-duplicates", "--unique", "source"],
            2,
            "--keep-duplicates contradicts --unique source",
        ),
        (["--unique", "word"], 2, "word"),
        (["--dropped", "a.en"], 2, "a.en is also an input"),
        (["--dropped", "no/x.tsv"], 2, "there is no directory no"),
        (["--scripts", "Latn"], 2, "--scripts Latn"),
    ],
)
def test_options_that_do_not_fit(
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    more: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(text)
    assert run(arguments(text, *more)) == code
    error = capfd.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (text / "data").exists()
    assert (text / "a.en").read_text().startswith("the dog 0\n")
