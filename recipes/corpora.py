"""The text of a recipe, as a table (recipes/wmt14_en_de.json) describes it.

corpora.py TABLE OUT LOCAL SMOKE
    OUT/downloads: the archives, checked. Then OUT/text, complete or absent: NAME.en and so on, and
    counts.json

LOCAL   a directory with the archives, or with the text files out of them, so that nothing is
        downloaded, or ""
SMOKE   a directory of parallel text, the first lines of which stand for every corpus, or "yes" for
        number names, or ""
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from downloads import Archive, fetch, read_members, say, unpacked
from number_names import write_corpus
from report import user_errors

from nmt_cli.errors import DataError
from nmt_cli.files.text import plain_or_compressed, read_lines

SIDES = ("source", "target")
# Lines of little text.
SMALL = {"train": 2000, "valid": 100, "test": 50}
# Names of the files of parallel text.
NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}

Table = dict[str, Any]


def collect(table: Table, out: Path, local: Path | None) -> None:
    """Get the archives of the table, or their text files, and write the text, a sentence a line."""
    downloads = out / "downloads"
    text = out / "text.part"
    downloads.mkdir(parents=True, exist_ok=True)
    text.mkdir(exist_ok=True)
    archives = [Archive(**archive) for archive in table["archives"]]
    fetched = [fetch(archive, downloads, out / "checksums.txt", local) for archive in archives]
    counts: dict[str, int] = {}
    for archive, whole in zip(archives, fetched, strict=True):
        readers = {}
        for corpus in table["corpora"]:
            if corpus["archive"] != archive.name:
                continue
            for side in SIDES:
                path = text / f"{corpus['name']}.{table[side]}"
                reader = partial(write_text, path, counts)
                readers[corpus[side]] = reader
                if not whole:
                    assert local is not None  # an archive is missing only there
                    text_file = unpacked_text(local, corpus, side, path.name)
                    with text_file.open("rb") as file:
                        reader(text_file.name, unpacked(text_file.name, file))
        if whole:
            read_members(downloads / archive.name, readers)
    result = checked_counts(table, counts)
    (text / "counts.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    text.rename(out / "text")


def unpacked_text(local: Path, corpus: Table, side: str, name: str) -> Path:
    """Return a text file in `local`, named as in its archive or as in the table."""
    member = Path(corpus[side])
    places = []
    for path in (member, Path(member.name), Path(name)):
        places += [path, Path(f"{path}.gz")]
    for place in places:
        if (local / place).is_file():
            say(f"  {name}: {local / place}")
            return local / place
    raise DataError(
        f"{local}: there is neither {corpus['archive']} nor {name} ({', '.join(map(str, places))})"
    )


def write_text(path: Path, counts: dict[str, int], name: str, file: IO[bytes]) -> None:
    """Write one side of a corpus as UTF-8 lines, and count them.

    Bytes that are not UTF-8 become U+FFFD.
    """
    lines = 0
    broken = 0
    sentences = segments(file) if ".sgm" in name else file
    with path.open("wb") as output:
        for line in sentences:
            text = line.decode("utf-8", errors="replace").removesuffix("\n").encode("utf-8") + b"\n"
            broken += text[:-1] != line.removesuffix(b"\n")
            output.write(text)
            lines += 1
    counts[path.name] = lines
    if broken:
        say(f"  {path.name}: bytes that are not UTF-8 became U+FFFD, in {broken:,} lines")


def segments(file: IO[bytes]) -> Iterator[bytes]:
    """Read the sentences of a test set in WMT's markup, <seg id="1">text</seg>, one a line."""
    for line in file:
        match = re.match(rb"\s*<seg[^>]*>(.*)</seg>", line, flags=re.IGNORECASE)
        if match:
            yield match[1].strip()


def checked_counts(table: Table, counts: dict[str, int]) -> dict[str, Any]:
    """Return the line counts beside the expected ones, and print them."""
    result = {}
    for corpus in table["corpora"]:
        source = counts[f"{corpus['name']}.{table['source']}"]
        target = counts[f"{corpus['name']}.{table['target']}"]
        if source != target:
            raise DataError(
                f"{corpus['name']}: {source:,} {table['source']} lines, {target:,} "
                f"{table['target']} lines: not parallel. Get {corpus['archive']} again"
            )
        expected = corpus["lines"]
        verdict = "as expected" if source == expected else f"NOT as expected: {expected:,}"
        say(f"  {corpus['name']:<20} {corpus['split']:<6} {source:>11,} lines, {verdict}")
        result[corpus["name"]] = {"split": corpus["split"], "lines": source, "expected": expected}
    return result


def write_small(table: Table, text: Path, out: Path) -> None:
    """Write the first lines of parallel text for every corpus.

    The training corpora share the training lines.
    """
    out.mkdir(parents=True, exist_ok=True)
    training = [corpus["name"] for corpus in table["corpora"] if corpus["split"] == "train"]
    for corpus in table["corpora"]:
        name = corpus["name"]
        split = corpus["split"]
        for language in (table["source"], table["target"]):
            path = parallel_text(text, split, language)
            lines = list(islice(read_lines(path), SMALL[split]))
            if split == "train":
                lines = lines[training.index(name) :: len(training)]
            content = "".join(f"{line}\n" for line in lines)
            (out / f"{name}.{language}").write_text(content, encoding="utf-8")


def parallel_text(folder: Path, split: str, language: str) -> Path:
    """Return the file of a split, plain or compressed."""
    for stem in NAMES[split]:
        path = plain_or_compressed(folder / f"{stem}.{language}")
        if path is not None:
            return path
    raise DataError(f"{folder}: there is no {' or '.join(NAMES[split])}.{language}, plain or .gz")


def main(name: str, out: str, local: str, smoke: str) -> None:
    table = json.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
    folder = Path(local) if local else None
    if smoke:
        text = Path(smoke)
        folder = Path(out) / "smoke"
        if smoke == "yes":
            text = folder / "numbers"
            write_corpus(text, table["source"], table["target"], train=2000, valid=20, test=20)
        write_small(table, text, folder)
    collect(table, Path(out), folder)


if __name__ == "__main__":
    with user_errors():
        main(*sys.argv[1:])
