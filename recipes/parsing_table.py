"""The choice of the sweep and the final table of recipes/wsj_parsing.sh, which calls it in its output directory.

parsing_table.py choose POINT...                 the best point of the sweep, as JSON
parsing_table.py flags CHOSEN                    its flags of nmt train
parsing_table.py table wsj|named SEMI SMOKE      the paper's figures beside those of this run, in Markdown
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from report import count_parameters

PAPERS_F1 = {"": 91.3, "semi-supervised": 92.7}
"""Table 4, section 23 of the WSJ; the second with 17 million trees that are not public."""
PAPERS_SUBWORDS = {"": 16_000, "semi-supervised": 32_000}
PAPERS_TREES = {"train": "about 40,000"}
"""Section 6.3; it does not give the sizes of the other sections."""
_POINT = re.compile(r"dropout-([^-]+)-scale-([^-]+)")


def read(name: str) -> Any:
    return json.loads(Path(name).read_text(encoding="utf-8"))


def choose(points: Sequence[str]) -> dict[str, Any]:
    """Return the point with the best F1 on the dev set, and the F1 of all points."""
    f1 = {point: read(f"sweep/{point}/dev.json")["f1"] for point in points}
    best = max(points, key=lambda point: f1[point])
    found = _POINT.fullmatch(best)
    assert found is not None, best
    return {"dropout": found[1], "learning_rate_scale": found[2], "f1": f1}


def flags(chosen: dict[str, Any]) -> str:
    """Return the flags of nmt train for the chosen point."""
    dropout, scale = chosen["dropout"], chosen["learning_rate_scale"]
    return f"--dropout {dropout} --attention-dropout {dropout} --learning-rate-scale {scale}"


def table(kind: str, semi: str, smoke: str) -> Iterator[str]:
    """Yield the lines of the table; the paper's column is filled for the WSJ only."""
    is_wsj = kind == "wsj"
    yield "| | paper | this run | difference |"
    yield "|---|---:|---:|---:|"
    for name in ("train", "dev", "test"):
        trees = len(Path(f"trees/{name}.ptb").read_text(encoding="utf-8").split("\n")) - 1
        paper = f"{PAPERS_TREES[name]} " if is_wsj and name in PAPERS_TREES else ""
        yield f"| {name}, trees | {paper}| {trees:,} | |"
    subwords = read("data/manifest.json")["task"]["config"]["vocab_size"]
    yield row("subwords", PAPERS_SUBWORDS[semi] if is_wsj else None, subwords, ",.0f")
    yield row("parameters", None, count_parameters(Path("averaged/model.safetensors")), ",.0f")
    for split in ("dev", "test"):
        yield from scores(split, PAPERS_F1[semi] if is_wsj and split == "test" else None)
    yield ""
    yield from notes(is_wsj, semi, smoke)


def scores(split: str, paper: float | None) -> Iterator[str]:
    """Yield the figures of one split, with repaired and with constrained output."""
    for name, stem in ((split, split), (f"{split}, constrained", f"{split}.constrained")):
        found = read(f"{stem}.json")
        repaired = re.findall(r"^repaired (.*)$", Path(f"{stem}.log").read_text(encoding="utf-8"), flags=re.MULTILINE)
        yield row(f"{name}: F1", paper, found["f1"])
        yield row(f"{name}: F1, at most {found['cutoff_length']} words", None, found["short"]["f1"])
        yield row(f"{name}: recall", None, found["recall"])
        yield row(f"{name}: precision", None, found["precision"])
        yield row(f"{name}: complete match, %", None, found["complete_match"])
        excluded = found["error_sentences"] + found["skipped_sentences"]
        yield row(f"{name}: sentences excluded by EVALB", None, excluded, "d")
        yield f"| {name}: repairs | | {repaired[-1] if repaired else 'none'} | |"


def row(name: str, paper: float | None, got: float, form: str = ".2f") -> str:
    """Return a line of the table, with a difference if the paper has the figure."""
    if paper is None:
        return f"| {name} | | {got:{form}} | |"
    return f"| {name} | {paper:{form}} | {got:{form}} | {got - paper:+{form}} |"


def notes(is_wsj: bool, semi: str, smoke: str) -> Iterator[str]:
    """Yield the text below the table."""
    chosen = read("chosen.json")
    yield f"Chosen on the dev set: dropout {chosen['dropout']}, learning rate times {chosen['learning_rate_scale']}."
    yield ""
    yield "| sweep | dev F1, greedy |"
    yield "|---|---:|"
    for point, f1 in chosen["f1"].items():
        yield f"| {point} | {f1:.2f} |"
    yield ""
    yield "F1 is EVALB's with COLLINS.prm, with gold tags over the words."
    if is_wsj:
        yield "LDC99T42 usually gives 39,832, 1,700 and 2,416 trees; the paper says about 40,000 for training alone."
    else:
        yield "This is not the paper's treebank: its F1 of 91.3 on WSJ section 23 cannot be compared."
    if semi:
        yield "The paper's 92.7 is with 17 million trees of two corpora that are not public."
    if smoke:
        yield "A smoke test with a tiny model on a few trees: it shows that the recipe works, nothing about quality."


def main(arguments: Sequence[str]) -> None:
    command, *rest = arguments
    if command == "choose":
        print(json.dumps(choose(rest), indent=2))
    elif command == "flags":
        print(flags(read(rest[0])))
    else:
        print("\n".join(table(*rest)))


if __name__ == "__main__":
    main(sys.argv[1:])
