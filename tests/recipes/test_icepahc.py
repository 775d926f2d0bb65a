"""The reader of the Icelandic corpus, and the table beside its authors' parser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import icepahc
import pytest
from toy_trees import treebank

from nmt_cli.annexes.parsing.trees import Leaf, line_tree, parse_trees, tree_line

Bash = Callable[..., CompletedProcess[str]]
TRAINING = [*icepahc.AUTHORS_TEXTS, "1985.sagan"]
EACH = 2  # trees a text


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        (
            "( (IP-MAT (NP-SBJ (N-N tungur$-tunga) (D-N $nar-hinn)) (VBPI eru-vera) (. .-.))\n"
            "  (ID 1150.FIRSTGRAMMAR.SCI-LIN,.3))",
            "(TOP (IP (NP (N-N tungurnar)) (VBPI eru) (. .)))",
        ),
        (
            "( (IP (VBI lát$-láta) (NP *con*) (NP-SBJ (PRO-N $tu-þú)) (CP-REL (WNP-1 0) (C sem))))",
            "(TOP (IP (VBI láttu) (CP (C sem))))",
        ),
        (
            "( (IP (CODE {COM:x}) (RP upp$-upp) (RP $á$-á) (VAN $lögð-x) (CODE (NP (N a-a)))))",
            "(TOP (IP (RP uppálögð)))",
        ),
        (
            "( (IP (- ---) (N hugar<dash/>víli-hugar<dash/>víli) (P {um}-um) (N nes-og-nes-nes)))",
            "(TOP (IP (- -) (N hugar-víli) (P um) (N nes-og-nes)))",
        ),
        ("( (IP (NP *T*-1) (TO *)) (ID 1,.1))", None),
        ("( (. .-.) (ID 1,.1))", None),
    ],
)
def test_words_of_the_corpus(source: str, tree: str | None) -> None:
    (placed,) = parse_trees(source.split("\n"), "text.psd")
    cleaned = icepahc.penn_tree(placed.tree)
    assert (cleaned and tree_line(cleaned)) == tree


def with_lemma(line: str) -> str:
    """The tree as the corpus writes it."""
    for leaf in {leaf.word: leaf for leaf in line_tree(line).leaves}.values():
        line = line.replace(f" {leaf.word})", f" {leaf.word}-lemma)")
    return line.replace("(TOP", "(", 1).removesuffix(")") + " (ID X,.1))"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus of made-up trees. The authors' parser knows the first tree of each text."""
    names = [*TRAINING, *icepahc.HELD_OUT["dev"], *icepahc.HELD_OUT["test"]]
    trees = iter(treebank(EACH * len(names), 0, 0)["train"])
    folder = tmp_path / "corpus"
    for part in ("finished", icepahc.PARSED):
        (folder / part).mkdir(parents=True)
    for name in names:
        lines = [next(trees) for _ in range(EACH)]
        content = "\n\n".join(map(with_lemma, lines))
        (folder / f"finished/{name}.nar-sag.psd").write_text(content, encoding="utf-8")
        outputs = [lines[0].replace("(NP", "(NP*SBJ"), lines[1].replace("(DT the)", "(DT other)")]
        path = folder / icepahc.PARSED / f"{name}.nar-sag.changed.parsed"
        path.write_text("\n".join(outputs), encoding="utf-8")
    return folder


@pytest.mark.parametrize(("texts", "number"), [("", len(TRAINING)), ("same-texts", 23)])
def test_the_split_by_text(corpus: Path, tmp_path: Path, texts: str, number: int) -> None:
    icepahc.main("treebank", str(corpus), str(tmp_path / "out"), texts)
    for split, size in (("train", number), ("dev", 10), ("test", 10)):
        lines = (tmp_path / f"out/{split}.ptb").read_text(encoding="utf-8").splitlines()
        assert len(lines) == EACH * size
        assert {len(line_tree(line).words) > 2 for line in lines} == {True}


def test_the_table_is_of_sentences_with_the_same_words(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    icepahc.main("treebank", str(corpus), str(tmp_path / "trees"))
    monkeypatch.chdir(tmp_path)
    for split in icepahc.HELD_OUT:
        lines = (tmp_path / f"trees/{split}.ptb").read_text(encoding="utf-8").splitlines()
        # Trees without a constituent inside, and with other tags.
        flat = []
        for line in lines:
            leaves = [event for event in line_tree(line).events if isinstance(event, Leaf)]
            flat.append("(TOP (S " + " ".join(f"(X {leaf.word})" for leaf in leaves) + "))")
        (tmp_path / f"{split}.ptb").write_text("\n".join(flat) + "\n", encoding="utf-8")
        content = "".join(f"{line}\n" for line in ["", *lines[1:]])  # one has no parse
        (tmp_path / f"{split}.constrained.ptb").write_text(content, encoding="utf-8")
    icepahc.main("compare", str(corpus))
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(("| dev", "| test"))
    ]
    for row, split in zip(rows, icepahc.HELD_OUT, strict=True):
        assert row[:3] == [split, "10 of 20", "100.00"]
        assert 0 < float(row[3]) < 60
        assert row[4] == "100.00"


def test_the_recipe_trains_on_the_same_texts(
    dry: Bash, calls: Callable[[], list[str]], corpus: Path, tmp_path: Path
) -> None:
    flags = ["--corpus", str(corpus), "--same-texts", "--dropouts", "0.3", "--out", "out"]
    dry("icepahc_parsing.sh", *flags, "--", "--seed", "3", STOP="train", code=9)
    train = calls()[-1]
    assert "--preset parsing_wsj --seed 3 --max-steps 20000 " in train
    assert " --dropout 0.3 " in train
    lines = (tmp_path / "out/trees/train.ptb").read_text(encoding="utf-8").splitlines()
    assert len(lines) == EACH * 23


def test_a_missing_text(dry: Bash, corpus: Path, tmp_path: Path) -> None:
    (corpus / "finished/1920.arin.nar-sag.psd").unlink()
    done = dry("icepahc_parsing.sh", "--corpus", str(corpus), "--out", "out", code=2)
    assert "1920.arin" in done.stderr
    assert not (tmp_path / "out").exists()
