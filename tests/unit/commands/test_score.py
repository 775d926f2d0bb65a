"""`nmt score`: figures, tables, and errors with their exit codes."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from nmt_cli.metrics.bleu import DEFAULT, MEASURES

REFERENCE = [
    "Der Hund läuft schnell über die Wiese.",
    "Er sagte „Ja“ zum U-Bahn-Plan.",
    "Das kostet 5,30 Euro.",
]
GOOD = [
    "Der Hund läuft schnell über die Wiese.",
    'Er sagte "Ja" zum U-Bahn-Plan.',
    "Das kostet 5,30 Dollar.",
]
BAD = ["Der Hund geht.", "Er sagte nein.", ""]

Score = Callable[..., tuple[int, str, str]]


@pytest.fixture
def nmt_score(nmt: Score, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Score:
    """Runs `nmt score ARGUMENTS` here, beside three files."""
    monkeypatch.chdir(tmp_path)
    for name, lines in (("good", GOOD), ("bad", BAD), ("reference", REFERENCE)):
        write(name, lines)
    return partial(nmt, "score")


def write(name: str, lines: Sequence[str]) -> None:
    Path(name).write_bytes("".join(f"{line}\n" for line in lines).encode())


def scores_of(output: str) -> dict[str, float]:
    return {score["metric"]: score["score"] for score in json.loads(output)["scores"]}


@pytest.mark.parametrize("metrics", [(), ("bleu", "chrf", "ter")])
def test_bleu_chrf_and_ter_are_sacrebleus_with_signatures(
    nmt_score: Score, metrics: Sequence[str]
) -> None:
    code, out, err = nmt_score(
        "bad", "--ref", "reference", *(f"--metric={name}" for name in metrics)
    )
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        "reference",
        "-i",
        "bad",
        "-w",
        "2",
        "-m",
        *(metrics or DEFAULT),
    ]
    expected_report = json.loads(
        subprocess.run(command, capture_output=True, check=True, text=True).stdout
    )
    rows = [line.split() for line in out.splitlines()]
    parts = re.match(r"(\S+) \(BP = (\S+) ratio = (\S+) ", expected_report[0]["verbose_score"])
    assert parts is not None
    assert code == 0
    assert err.endswith(
        f"BLEU: precisions {parts[1]}, brevity penalty {parts[2]}, length ratio {parts[3]}\n"
    )
    assert rows == [
        [metric["name"], f"{metric['score']:.2f}", metric["signature"]]
        for metric in expected_report
    ]


def test_json_is_one_object(nmt_score: Score) -> None:
    code, out, _ = nmt_score("good", "--ref", "reference", "--metric", "ALL", "--json")
    report: dict[str, Any] = json.loads(out)
    assert code == 0
    assert [score["metric"] for score in report["scores"]] == list(MEASURES)
    assert all(
        score["signature"].startswith("nrefs:1|case:") and score["name"]
        for score in report["scores"]
    )


@pytest.mark.parametrize(
    ("reference", "flags", "language", "noted"),
    [
        ("ref.fr", "--metric paper", "fr", False),
        ("ref.fr.gz", "--metric paper", "fr", False),
        ("ref.txt", "--metric paper", "de", True),
        ("ref.txt", "--metric paper --target-lang cs", "cs", False),
        ("ref.txt", "--metric chrf --target-lang cs", None, False),
    ],
)
def test_the_language_of_the_tokenizer(
    reference: str, flags: str, language: str | None, noted: bool, nmt_score: Score
) -> None:
    write(reference, REFERENCE)
    _, out, err = nmt_score("good", "--ref", reference, *flags.split(), "--json")
    assert json.loads(out)["target_language"] == language
    assert (f"tok:moses-{language}" in out) == (language is not None)
    assert ("--target-lang" in err) == noted


def test_compressed_files_and_stdin_score_the_same(
    nmt_score: Score, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("good.gz").write_bytes(gzip.compress(Path("good").read_bytes()))
    Path("reference.de.gz").write_bytes(gzip.compress(Path("reference").read_bytes()))
    plain = scores_of(nmt_score("good", "--ref", "reference", "--json")[1])
    assert scores_of(nmt_score("good.gz", "--ref", "reference.de.gz", "--json")[1]) == plain
    with Path("good.gz").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert scores_of(nmt_score("-", "--ref", "reference", "--json")[1]) == plain


def test_several_references(nmt_score: Score) -> None:
    _, out, _ = nmt_score(
        "good", "--ref", "reference", "--ref", "good", "--metric", "bleu", "--json"
    )
    (score,) = json.loads(out)["scores"]
    assert score["score"] == 100
    assert score["signature"].startswith("nrefs:2|")
    write("short", REFERENCE[:1])
    code, _, err = nmt_score("good", "--ref", "reference", "--ref", "short")
    assert code == 1
    assert "short: 1 line, but reference has 3" in err


def test_several_systems(nmt_score: Score) -> None:
    code, out, _ = nmt_score("good", "bad", "--ref", "reference", "--json")
    scores = json.loads(out)["scores"]
    assert code == 0
    assert [(score["system"], score["metric"]) for score in scores[:2]] == [
        ("good", "bleu"),
        ("bad", "bleu"),
    ]
    assert scores[0]["score"] > scores[1]["score"]
    _, out, _ = nmt_score("good", "bad", "--ref", "reference")
    assert re.search(rf"^bad +{scores[1]['score']:.2f} ", out, re.MULTILINE)


@pytest.mark.parametrize("test", ["paired-bootstrap", "approximate-randomization"])
def test_paired_tests(test: str, nmt_score: Score) -> None:
    arguments = (
        *"good bad --ref reference --metric chrf --test".split(),
        test,
        "--test-samples",
        "50",
    )
    _, out, _ = nmt_score(*arguments, "--json")
    baseline, bad = json.loads(out)["comparisons"]
    assert baseline["p_value"] is None
    assert bad["baseline"] == "good"
    assert 0 < bad["p_value"] <= 1
    _, out, _ = nmt_score(*arguments)
    assert f"(p={bad['p_value']:.4f}" in out


def test_groups_are_scored_as_files_of_their_lines(nmt_score: Score) -> None:
    write("labels", ["\ufeffb", "a", "b"])  # Windows writes a byte-order mark
    write("good-b", [GOOD[0], GOOD[2]])
    write("reference-b", [REFERENCE[0], REFERENCE[2]])
    flags = ("--metric", "bleu,chrf", "--metric", "exact,cer")
    _, out, _ = nmt_score(
        "good", "bad", "--ref", "reference", *flags, "--group-by", "labels", "--json"
    )
    report = json.loads(out)
    assert report["groups"] == {"a": 1, "b": 2}
    alone = scores_of(nmt_score("good-b", "--ref", "reference-b", *flags, "--json")[1])
    assert {
        scored["metric"]: scored["groups"]["b"]
        for scored in report["scores"]
        if scored["system"] == "good"
    } == alone
    _, out, _ = nmt_score(
        "good", "--ref", "reference", "--metric", "exact,cer", "--group-by", "labels"
    )
    assert [line.split()[:3] for line in out.splitlines()[3:]] == [
        ["group", "lines", "exact"],
        ["a", "1", "0.00"],
        ["b", "2", "50.00"],
    ]
    _, out, _ = nmt_score(
        "good", "bad", "--ref", "reference", "--metric", "exact", "--group-by", "labels"
    )
    assert re.search("^group +lines +good exact +bad exact$", out, re.MULTILINE)


def test_lines_are_scored_as_sacrebleu_scores_sentences(nmt_score: Score) -> None:
    metrics = ("--metric", "bleu,chrf,ter,exact", "--per-line")
    code, out, _ = nmt_score("good", "--ref", "reference", *metrics)
    rows = [
        (
            sacrebleu.sentence_bleu(line, [reference]).score,
            sacrebleu.sentence_chrf(line, [reference]).score,
            sacrebleu.sentence_ter(line, [reference]).score,
            100 * (line == reference),
        )
        for line, reference in zip(GOOD, REFERENCE, strict=True)
    ]
    assert (code, out) == (
        0,
        "".join("\t".join(f"{value:.4f}" for value in row) + "\n" for row in rows),
    )
    _, out, _ = nmt_score("good", "--ref", "reference", *metrics, "--json")
    assert json.loads(out)["scores"][-1]["groups"] == {"1": 100, "2": 0, "3": 0}


def test_nbest_lists(nmt_score: Score) -> None:
    write(
        "nbest",
        [
            f"{number}\t0.5\t{line}"
            for number, pair in enumerate(zip(BAD, GOOD, strict=True), 1)
            for line in pair
        ],
    )
    metrics = "top-1,top-2,top-3,bleu"
    _, out, _ = nmt_score("nbest", "--ref", "reference", "--metric", metrics, "--json")
    expected = scores_of(nmt_score("bad", "--ref", "reference", "--metric", "bleu", "--json")[1])
    third = pytest.approx(100 / 3)
    assert scores_of(out) == {"top-1": 0, "top-2": third, "top-3": third} | expected
    write("nbest", ["1\t0.5\tA", "B"])
    code, _, err = nmt_score("nbest", "--ref", "reference", "--metric", "top-3")
    assert code == 1
    assert "nbest:2: expected a line number, a finite score and a text" in err


def test_functions_are_metrics(nmt_score: Score, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lengths of sources, a number for all lines, and a wrong number of values."""
    monkeypatch.syspath_prepend(".")
    lines = (
        "lengths(h, r, s): return list(map(len, s))",
        "whole(h, r, s): return 0.5",
        "short(h, r, s): return [1]",
    )
    lines = (*lines, "odd(h, r, s): return s", "few(h, r): return 1")
    Path("own_metrics.py").write_text("".join(f"def {line}\n" for line in lines))
    flags = ("good", "--ref", "reference", "--source", "bad", "--metric")
    _, out, _ = nmt_score(*flags, "own_metrics:lengths,own_metrics:whole")
    mean = sum(map(len, BAD)) / 3
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["own_metrics:lengths", f"{mean:.2f}"],
        ["own_metrics:whole", "0.50"],
    ]
    assert nmt_score(*flags, "own_metrics:lengths", "--per-line")[1].split() == [
        f"{len(line)}.0000" for line in BAD
    ]
    for more in (["--per-line"], ["--group-by", "good"]):
        assert "returned one number" in nmt_score(*flags, "own_metrics:whole", *more)[2]
    tested = nmt_score("bad", *flags, "own_metrics:whole", "--test", "paired-bootstrap")
    assert (tested[0], "returned one number" in tested[2]) == (2, True)
    assert "returned 1 values for 3 lines" in nmt_score(*flags, "own_metrics:short")[2]
    for name in ("own_metrics:odd", "own_metrics:few"):
        code, _, err = nmt_score(*flags, name)
        assert (code, "Traceback" in err) == (2, False)
        assert f"metric {name}: " in err
    for name in ("own_metrics:none", "no_such_module:f", "own metrics:x"):
        code, out, err = nmt_score(*flags, name)
        assert (code, out) == (2, "")
        assert f"metric {name}: cannot import it" in err
    code, _, err = nmt_score("good", "--ref", "reference", "--ref", "good", "--metric", "exact")
    assert code == 2
    assert "compares with one reference" in err


@pytest.mark.parametrize("flag", ["--source", "--group-by"])
def test_files_beside_have_as_many_lines(nmt_score: Score, flag: str) -> None:
    write("short", REFERENCE[:2])
    code, _, err = nmt_score("good", "--ref", "reference", flag, "short", "--metric", "exact")
    assert code == 1
    assert "short: 2 lines, but reference has 3" in err


def test_a_byte_order_mark_counts(nmt_score: Score) -> None:
    Path("good").write_bytes("\ufeff".encode() + Path("reference").read_bytes())
    assert scores_of(nmt_score("good", "--ref", "reference", "--json")[1])["bleu"] < 100


@pytest.mark.parametrize("line", ["Das ist ein Ka@@ ter", "am En@@", "\u2581Das \u2581ist"])
@pytest.mark.parametrize("file", ["good", "reference"])
def test_subword_marks_are_rejected_by_file_and_line(
    line: str, file: str, nmt_score: Score
) -> None:
    write(file, ["Gut.", line, "Gut."])
    code, out, err = nmt_score("good", "--ref", "reference", "--json")
    assert (code, out) == (1, "")
    assert f"{file}:2:" in err
    assert (
        nmt_score("good", "--ref", "reference", "--metric", "chrf", "--allow-subword-marks")[0] == 0
    )
    write(file, ["a@b.de und @@x", "@ @ ##", "C@@rt"])  # no subword marks
    assert nmt_score("good", "--ref", "reference", "--metric", "chrf")[0] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Gut.\nGr\xfc\xdfe\n", r"good:2:.*0xfc.*3"),
        (b"", r"good:.*empty"),
        (gzip.compress(b"Gut.\n", mtime=0)[:-9], r"good:.*gzip"),
        (None, r"good:.*No such file"),
        (b"Gut.\n" * 2, r"good: 2 lines.*3"),
    ],
)
def test_bad_files(content: bytes | None, message: str, nmt_score: Score) -> None:
    if content is None:
        Path("good").unlink()
    else:
        Path("good").write_bytes(content)
    code, out, err = nmt_score("good", "--ref", "reference")
    assert (code, out) == (1, "")
    assert re.search(message, err)
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["good", "--ref", "reference", "--metric", "bleau"], "Did you mean bleu"),
        (["good", "--ref", "reference", "--metric", "zzz"], "'zzz'. See nmt score --help"),
        (["good", "--ref", "reference", "--metric", "paper", "--target-lang", "xx"], "'xx'"),
        (["good", "--ref", "reference", "--test", "paired-bootstrap"], "give two or more files"),
        (
            ["good", "bad", "--ref", "reference", "--test", "bootstrap"],
            "Did you mean paired-bootstrap",
        ),
        (["-", "--ref", "-"], "can be read only once"),
        (["good", "good", "--ref", "reference"], "good is given twice"),
        (["good", "--ref", "reference", "--test-samples", "5"], "--test-samples needs --test"),
        (
            ["good", "bad", "--ref", "good", "--test", "paired-bootstrap", "--per-line"],
            "cannot be used together",
        ),
        (["good"], "--ref"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, nmt_score: Score) -> None:
    code, out, err = nmt_score(*arguments)
    assert (code, out) == (2, "")
    assert message in re.sub(r"\x1b\[[0-9;]*m", "", err)


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_closed_pipe_ends_quietly(extra: list[str], nmt_score: Score) -> None:
    command = [sys.executable, "-m", "nmt_cli.cli", "score", "good", "--ref", "reference", *extra]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
