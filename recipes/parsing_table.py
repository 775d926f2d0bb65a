"""The choice of the sweep and the final table of recipes/wsj_parsing.sh, in its output directory.

parsing_table.py flags                      the flags of nmt train for the best point of the sweep
parsing_table.py wsj|named|toy SEMI SMOKE   the paper's figures beside this run's, in Markdown
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from paper_tables import row
from report import count_parameters, print_table, read_json, read_lines

# Table 4, section 23 of the WSJ. The second is with 17 million trees that are not public.
PAPERS_F1 = {"": 91.3, "semi-supervised": 92.7}
PAPERS_SUBWORDS = {"": 16_000, "semi-supervised": 32_000}


def sweep() -> dict[str, float]:
    """Return the F1 on the dev set of every point, the best one first. The only one has none: 0."""
    f1 = {}
    for point in sorted(Path("sweep").iterdir()):
        scores = point / "dev.json"
        f1[point.name] = float(read_json(scores)["f1"]) if scores.exists() else 0.0
    return dict(sorted(f1.items(), key=lambda item: -item[1]))


def chosen() -> tuple[str, str]:
    """Return the dropout and the learning rate scale of the best point."""
    best, *_ = sweep()
    _, dropout, scale = re.split("dropout-|-scale-", best)
    return dropout, scale


def rows(is_wsj: bool, semi: str) -> Iterator[list[str]]:
    """Yield the rows of the table. The paper's column is filled for the WSJ only."""
    for name in ("train", "dev", "test"):
        # Section 6.3 gives no other size.
        paper = "about 40,000" if is_wsj and name == "train" else ""
        yield [f"{name}, trees", paper, f"{len(read_lines(Path(f'trees/{name}.ptb'))):,}", ""]
    subwords = read_json(Path("data/manifest.json"))["task"]["config"]["vocab_size"]
    yield row("subwords", PAPERS_SUBWORDS[semi] if is_wsj else math.nan, subwords)
    yield row("parameters", math.nan, count_parameters(Path("averaged/model.safetensors")))
    for stem in ("dev", "dev.constrained", "test", "test.constrained"):
        name = stem.replace(".", ", ")
        scores = read_json(Path(f"{stem}.json"))
        paper_f1 = PAPERS_F1[semi] if is_wsj and stem.startswith("test") else math.nan
        short = f"{name}: F1, at most {scores['cutoff_length']} words"
        excluded = scores["error_sentences"] + scores["skipped_sentences"]
        yield row(f"{name}: F1", paper_f1, scores["f1"], ".2f")
        yield row(short, math.nan, scores["short"]["f1"], ".2f")
        yield row(f"{name}: recall", math.nan, scores["recall"], ".2f")
        yield row(f"{name}: precision", math.nan, scores["precision"], ".2f")
        yield row(f"{name}: complete match, %", math.nan, scores["complete_match"], ".2f")
        yield row(f"{name}: sentences excluded by EVALB", math.nan, excluded)
        repairs = "none"
        for line in read_lines(Path(f"{stem}.log")):
            if line.startswith("repaired "):
                repairs = line.removeprefix("repaired ")
        yield [f"{name}: repairs", "", repairs, ""]


def main(kind: str, semi: str = "", smoke: str = "") -> None:
    dropout, scale = chosen()
    if kind == "flags":
        print(f"--dropout {dropout} --attention-dropout {dropout} --learning-rate-scale {scale}")
        return
    print_table(["", "paper", "this run", "difference"], list(rows(kind == "wsj", semi)))
    points = [[point, f"{f1:.2f}"] for point, f1 in sweep().items()]
    print(f"\nDropout {dropout}, learning rate times {scale}.\n")
    if len(points) > 1:
        print_table(["sweep", "dev F1, greedy"], points)
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
