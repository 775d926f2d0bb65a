"""The text of WebNLG 2017 for recipes/tasks/webnlg.sh.

webnlg.py DIR OUT
    write OUT/{train,valid,test}.tsv, OUT/references/1 and so on, and OUT/labels, from DIR's
    {train,dev,test}.{src,trg,info}
webnlg.py detokenize
    standard input without the spaces between tokens
"""

from __future__ import annotations

import sys
from itertools import groupby, zip_longest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from report import user_errors, write_lines
from sacremoses import MosesDetokenizer

from nmt_cli.errors import DataError
from nmt_cli.files.text import read_lines

detokenizer = MosesDetokenizer(lang="en")


def detokenized(line: str) -> str:
    text: str = detokenizer.detokenize(line.split(" "))
    return text


def found(folder: Path, name: str) -> Path:
    """Return the path of a file, plain or compressed."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path
    raise DataError(f"there is no {name} in {folder}")


def pairs(folder: Path, part: str) -> list[tuple[str, str]]:
    """Return triples and a text of each pair."""
    sources = list(read_lines(found(folder, f"{part}.src")))
    targets = list(read_lines(found(folder, f"{part}.trg")))
    if len(sources) != len(targets):
        raise DataError(f"{folder}: {part}.src and {part}.trg do not have as many lines")
    return [
        (source.strip(), target.strip()) for source, target in zip(sources, targets, strict=True)
    ]


def domains(folder: Path, part: str) -> list[str]:
    """Return the domain of each set of triples, such as Airport."""
    return [line.split(",")[1] for line in read_lines(found(folder, f"{part}.info"))]


def main(folder: Path, out: Path) -> None:
    (out / "references").mkdir(parents=True, exist_ok=True)
    for part, name in (("train", "train"), ("dev", "valid")):
        write_lines(out / f"{name}.tsv", ["\t".join(pair) for pair in pairs(folder, part)])
    # A set of triples stands on a line for each of its texts.
    sets = []
    for source, group in groupby(pairs(folder, "test"), key=lambda pair: pair[0]):
        sets.append((source, [target for _, target in group]))
    seen = set(domains(folder, "train"))
    labels = ["seen" if domain in seen else "unseen" for domain in domains(folder, "test")]
    if len(labels) != len(sets):
        raise DataError(f"{folder}: test.src has {len(sets):,} sets, test.info {len(labels):,}")
    write_lines(out / "test.tsv", [f"{source}\t{texts[0]}" for source, texts in sets])
    for number, texts in enumerate(zip_longest(*(texts for _, texts in sets), fillvalue=""), 1):
        write_lines(out / f"references/{number}", [detokenized(text) for text in texts])
    write_lines(out / "labels", labels)


if __name__ == "__main__":
    with user_errors():
        if sys.argv[1:] == ["detokenize"]:
            for line in read_lines(None):
                print(detokenized(line))
        else:
            main(*map(Path, sys.argv[1:]))
