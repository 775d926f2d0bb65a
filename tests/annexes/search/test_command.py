"""`nmt rerank`: what it chooses, and its errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import nmt_cli

Nmt = Callable[..., tuple[int, str, str]]
SOURCE = ["abc", "", "hgfedcba"]
LIST = [
    (1, -2.0, "ab"),
    (1, -1.0, "abc"),
    (1, -3.0, "abd"),
    (2, 0.0, ""),
    (3, -0.5, "gh fe"),
    (3, -0.7, "a"),
]


@pytest.fixture
def rerank(
    nmt: Nmt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    write(Path("list"), "".join(f"{number}\t{score}\t{text}\n" for number, score, text in LIST))
    write(Path("source"), "".join(f"{line}\n" for line in SOURCE))
    return lambda *flags: nmt("rerank", "--input", "list", "--device", "cpu", "--quiet", *flags)


def write(path: Path, text: str) -> None:
    path.write_bytes(text.encode())


def chosen(result: tuple[int, str, str]) -> list[str]:
    assert (result[0], result[2]) == (0, "")
    return result[1].removesuffix("\n").split("\n")


def test_scores_similarity_and_both(rerank: Nmt) -> None:
    assert chosen(rerank("--score-weight", 1)) == ["abc", "", "gh fe"]
    assert chosen(rerank("--score-weight", -1)) == ["abd", "", "a"]
    # "ab" is in both others: the first of equals.
    assert chosen(rerank("--mbr", "chrf")) == ["ab", "", "gh fe"]
    assert chosen(rerank("--mbr", "chrf*-1")) == ["abc", "", "gh fe"]
    assert chosen(rerank("--mbr", "chrf", "--score-weight", 0.1)) == ["abc", "", "gh fe"]


@pytest.mark.parametrize("direction", ["model", "reverse", "language-model"])
def test_models_score_as_the_search_does(
    rerank: Nmt, direction: str, tiny_checkpoint: Path
) -> None:
    translator = nmt_cli.load(tiny_checkpoint, device="cpu")
    best: list[tuple[int, float, str]] = []
    for number, _, text in LIST:
        source = SOURCE[number - 1]
        pair = {"model": (source, text), "reverse": (text, source), "language-model": ("x", text)}[
            direction
        ]
        (scored,) = translator.score_targets([pair[0]], [pair[1]])
        value = scored.score / ((5 + len(scored.token_scores)) / 6) ** 0.6  # section 6.1
        if len(best) < number or value > best[-1][1]:
            best[number - 1 :] = [(number, value, text)]
    sources = () if direction == "language-model" else ("--source", "source")
    assert chosen(rerank(f"--{direction}", tiny_checkpoint, *sources)) == [
        text for *_, text in best
    ]
    worst = chosen(rerank(f"--{direction}", f"{tiny_checkpoint}*-1", *sources))
    assert all(
        text != other
        for text, other in zip(worst, [text for *_, text in best], strict=True)
        if text
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1\tnan\ta\n", "list:1: expected a line number, a finite score"),
        ("1\t0.5\ta\nno columns\n", "list:2: expected a line number, a finite score and a text"),
        ("1\tx\ta\n", "list:1: expected a line number"),
        ("2\t0\ta\n", "list:1: expected an output of line 1, not 2"),
        ("1\t0\ta\n3\t0\tb\n", "list:2: expected an output of line 2, not 3"),
        ("1\t0\ta\n2\t0\tb\n1\t0\ta\n", "list:3: expected an output of line 3, not 1"),
    ],
)
def test_a_list_of_another_form(rerank: Nmt, content: str, message: str) -> None:
    write(Path("list"), content)
    code, _, err = rerank("--mbr", "chrf")
    assert code == 1
    assert message in err


@pytest.mark.parametrize("lines", [SOURCE[:2], [*SOURCE, "a"]])
def test_a_source_of_another_length(rerank: Nmt, lines: list[str], tiny_checkpoint: Path) -> None:
    write(Path("source"), "".join(f"{line}\n" for line in lines))
    code, _, err = rerank("--model", tiny_checkpoint, "--source", "source", "--output", "out")
    assert code == 1
    assert f"source has {len(lines)} lines but list has 3" in err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give --mbr chrf"),
        (["--mbr", "bleu"], "--mbr must be chrf, not 'bleu'"),
        (["--mbr", "chrf*much"], "the weight after * must be a finite number, not 'much'"),
        (["--model", "run"], "need --source FILE"),
        (["--mbr", "chrf", "--source", "source"], "need --source FILE"),
        (["--mbr", "chrf", "--output", "list"], "list is also an input"),
    ],
)
def test_wrong_usage(rerank: Nmt, flags: list[str], message: str) -> None:
    code, out, err = rerank(*flags)
    assert (code, out) == (2, "")
    assert message in err
