"""The choice of the sweep and the final table of recipes/wsj_parsing.sh, which calls it in its
output directory.

parsing_table.py flags                       the flags of nmt train for the best point of the sweep
parsing_table.py wsj|named|toy SEMI SMOKE    the paper's figures beside those of this run, in Markdown
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from paper_tables import row
from report import count_parameters, print_table, read_json, read_lines

PAPERS_F1 = {"": 91.3, "semi-supervised": 92.7}
"""Table 4, section 23 of the WSJ; the second with 17 million trees that are not public."""
PAPERS_SUBWORDS = {"": 16_000, "semi-supervised": 32_000}


def sweep() -> dict[str, float]:
    """Return the F1 on the dev set of every point, the best one first."""
    f1 = {
        path.parent.name: float(read_json(path)["f1"])
        for path in sorted(Path("sweep").glob("*/dev.json"))
    }
    return dict(sorted(f1.items(), key=lambda item: -item[1]))


def chosen() -> list[str]:
    """Return the dropout and the learning rate scale of the best point."""
    return re.split("dropout-|-scale-", next(iter(sweep())))[1:]


def rows(is_wsj: bool, semi: str) -> Iterator[list[str]]:
    """Yield the rows of the table; the paper's column is filled for the WSJ only."""
    for name in ("train", "dev", "test"):
        # Section 6.3 gives no other size.
        paper = "about 40,000" if is_wsj and name == "train" else ""
        yield [f"{name}, trees", paper, f"{len(read_lines(Path(f'trees/{name}.ptb'))):,}", ""]
    subwords = read_json(Path("data/manifest.json"))["task"]["config"]["vocab_size"]
    yield row("subwords", PAPERS_SUBWORDS[semi] if is_wsj else math.nan, subwords)
    yield row("parameters", math.nan, count_parameters(Path("averaged/model.safetensors")))
    for stem in ("dev", "dev.constrained", "test", "test.constrained"):
        name, found = stem.replace(".", ", "), read_json(Path(f"{stem}.json"))
        known = PAPERS_F1[semi] if is_wsj and stem.startswith("test") else math.nan
        yield row(f"{name}: F1", known, found["f1"], ".2f")
        yield row(
            f"{name}: F1, at most {found['cutoff_length']} words",
            math.nan,
            found["short"]["f1"],
            ".2f",
        )
        yield row(f"{name}: recall", math.nan, found["recall"], ".2f")
        yield row(f"{name}: precision", math.nan, found["precision"], ".2f")
        yield row(f"{name}: complete match, %", math.nan, found["complete_match"], ".2f")
        excluded = found["error_sentences"] + found["skipped_sentences"]
        yield row(f"{name}: sentences excluded by EVALB", math.nan, excluded)
        repaired = [
            line for line in read_lines(Path(f"{stem}.log")) if line.startswith("repaired ")
        ]
        yield [
            f"{name}: repairs",
            "",
            repaired[-1].removeprefix("repaired ") if repaired else "none",
            "",
        ]


def main(kind: str, semi: str = "", smoke: str = "") -> None:
    dropout, scale = chosen()
    if kind == "flags":
        print(f"--dropout {dropout} --attention-dropout {dropout} --learning-rate-scale {scale}")
        return
    print_table(["", "paper", "this run", "difference"], list(rows(kind == "wsj", semi)))
    print(f"\nChosen on the dev set: dropout {dropout}, learning rate times {scale}.\n")
    print_table(
        ["sweep", "dev F1, greedy"], [[point, f"{f1:.2f}"] for point, f1 in sweep().items()]
    )
    print("\nF1 is EVALB's with COLLINS.prm, with gold tags over the words.")
    if kind == "wsj":
        print(
            "LDC99T42 usually gives 39,832, 1,700 and 2,416 trees; the paper says about 40,000 for "
            "training alone."
        )
    else:
        print(
            "This is not the paper's treebank: its F1 of 91.3 on WSJ section 23 cannot be compared."
        )
    if semi:
        print("The paper's 92.7 is with 17 million trees of two corpora that are not public.")
    if smoke:
        print(
            "A smoke test with a tiny model on a few trees: it shows that the recipe works, "
            "nothing about quality."
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
