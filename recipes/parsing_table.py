"""What recipes/wsj_parsing.sh chooses and shows; called in the recipe's folder, writes to standard output.

parsing_table.py choose POINT...                 the best point of the sweep, as JSON
parsing_table.py flags CHOSEN                    its flags of nmt train
parsing_table.py table wsj|named SEMI SMOKE      the paper, this run, the difference, in Markdown
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
"""Table 4, section 23 of the WSJ: from the treebank alone, and with 17 million trees that are not public."""
PAPERS_SUBWORDS = {"": 16_000, "semi-supervised": 32_000}
PAPERS_TREES = {"train": "about 40,000"}
"""Section 6.3; it does not say how many trees the other sections have."""
_POINT = re.compile(r"dropout-([^-]+)-scale-([^-]+)")


def read(name: str) -> Any:
    return json.loads(Path(name).read_text(encoding="utf-8"))


def choose(points: Sequence[str]) -> dict[str, Any]:
    """The point with the best F1 on the dev set, and the F1 of all."""
    f1 = {point: read(f"sweep/{point}/dev.json")["f1"] for point in points}
    best = max(points, key=lambda point: f1[point])
    found = _POINT.fullmatch(best)
    assert found is not None, best
    return {"dropout": found[1], "learning_rate_scale": found[2], "f1": f1}


def flags(chosen: dict[str, Any]) -> str:
    """The flags of nmt train that the sweep has chosen."""
    dropout = chosen["dropout"]
    scale = chosen["learning_rate_scale"]
    return f"--dropout {dropout} --attention-dropout {dropout} --learning-rate-scale {scale}"


def table(kind: str, semi: str, smoke: str) -> Iterator[str]:
    """The lines of the table; the paper's column is filled for its own treebank alone, with what the paper says."""
    is_papers = kind == "wsj"
    yield "| | paper | this run | difference |"
    yield "|---|---:|---:|---:|"
    for name in ("train", "dev", "test"):
        trees = len(Path(f"trees/{name}.ptb").read_text(encoding="utf-8").split("\n")) - 1
        paper = f"{PAPERS_TREES[name]} " if is_papers and name in PAPERS_TREES else ""
        yield f"| {name}, trees | {paper}| {trees:,} | |"
    subwords = read("data/manifest.json")["task"]["config"]["vocab_size"]
    yield row("subwords", PAPERS_SUBWORDS[semi] if is_papers else None, subwords, ",.0f")
    yield row("parameters", None, count_parameters(Path("averaged/model.safetensors")), ",.0f")
    for split in ("dev", "test"):
        yield from scores(split, PAPERS_F1[semi] if is_papers and split == "test" else None)
    yield ""
    yield from notes(kind, semi, smoke)


def scores(split: str, paper: float | None) -> Iterator[str]:
    """The figures of one split, with output repaired and constrained."""
    for way, stem in (("", split), (", constrained", f"{split}.constrained")):
        found = read(f"{stem}.json")
        left_out = found["error_sentences"] + found["skipped_sentences"]
        yield row(f"{split}{way}: F1", paper, found["f1"])
        yield row(f"{split}{way}: F1, at most {found['cutoff_length']} words", None, found["short"]["f1"])
        yield row(f"{split}{way}: recall", None, found["recall"])
        yield row(f"{split}{way}: precision", None, found["precision"])
        yield row(f"{split}{way}: complete match, %", None, found["complete_match"])
        yield row(f"{split}{way}: sentences left out by EVALB", None, left_out, "d")
        yield f"| {split}{way}: repairs | | {repairs(stem)} | |"


def repairs(stem: str) -> str:
    """What `nmt translate` said of them."""
    log = Path(f"{stem}.log").read_text(encoding="utf-8")
    found = re.findall(r"^repaired (.*)$", log, flags=re.MULTILINE)
    return str(found[-1]) if found else "unknown"


def row(name: str, paper: float | None, got: float, form: str = ".2f") -> str:
    """A line of the table; no paper's figure, no difference."""
    if paper is None:
        return f"| {name} | | {got:{form}} | |"
    return f"| {name} | {paper:{form}} | {got:{form}} | {got - paper:+{form}} |"


def notes(kind: str, semi: str, smoke: str) -> Iterator[str]:
    """What must be known to read the table."""
    chosen = read("chosen.json")
    yield f"Chosen on the dev set: dropout {chosen['dropout']}, learning rate times {chosen['learning_rate_scale']}."
    yield ""
    yield "| sweep | dev F1, greedy |"
    yield "|---|---:|"
    for point, f1 in chosen["f1"].items():
        yield f"| {point} | {f1:.2f} |"
    yield ""
    yield "F1 is EVALB's under COLLINS.prm, gold tags over the words."
    if kind == "wsj":
        yield "LDC99T42 usually gives 39,832, 1,700 and 2,416 trees; the paper says about 40,000 for training alone."
    else:
        yield "Another treebank than the paper's: its F1, 91.3 on WSJ section 23, is no measure for this one."
    if semi:
        yield "The paper's 92.7 is with 17 million trees of two corpora that are not public."
    if smoke:
        yield "A smoke test, a tiny model on a few trees: it shows that the recipe works, and nothing about quality."


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
