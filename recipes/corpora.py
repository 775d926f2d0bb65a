"""The text of a recipe, as a table (recipes/wmt14_en_de.json) describes it.

corpora.py TABLE OUT LOCAL SMOKE    OUT/downloads: the archives, checked; then OUT/text, complete or absent: NAME.en and
                                    so on, and counts.json

LOCAL   a directory with the archives, or with the text files out of them; nothing is downloaded
then; or "" SMOKE   a directory of parallel text, the first lines of which stand for every corpus;
"yes": number names; or ""
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
SMALL = {"train": 2000, "valid": 100, "test": 50}
"""Lines of little text."""
NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}
"""Names of the files of parallel text."""

Table = dict[str, Any]


def collect(table: Table, out: Path, local: Path | None) -> None:
    """Get every archive of the table, or the text files out of it, and write the text, a sentence a
    line.
    """
    downloads, text = out / "downloads", out / "text.part"
    downloads.mkdir(parents=True, exist_ok=True)
    text.mkdir(exist_ok=True)
    archives = [Archive(**archive) for archive in table["archives"]]
    fetched = [fetch(archive, downloads, out / "checksums.txt", local) for archive in archives]
    counts: dict[str, int] = {}
    for archive, whole in zip(archives, fetched, strict=True):
        readers = {}
        for corpus in table["corpora"]:
            for side in SIDES if corpus["archive"] == archive.name else ():
                path = text / f"{corpus['name']}.{table[side]}"
                readers[corpus[side]] = partial(write_text, path, counts)
                if not whole:
                    assert local is not None  # an archive is missing only there
                    found = unpacked_text(local, corpus, side, path.name)
                    with found.open("rb") as file:
                        readers[corpus[side]](found.name, unpacked(found.name, file))
        if whole:
            read_members(downloads / archive.name, readers)
    result = checked_counts(table, counts)
    (text / "counts.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    text.rename(out / "text")


def unpacked_text(local: Path, corpus: Table, side: str, name: str) -> Path:
    """Return a text file in `local`: named as in its archive, with or without directory, or as in
    the table.
    """
    member = Path(corpus[side])
    places = [
        place
        for path in (member, Path(member.name), Path(name))
        for place in (path, Path(f"{path}.gz"))
    ]
    for place in places:
        if (local / place).is_file():
            say(f"  {name}: {local / place}")
            return local / place
    raise DataError(
        f"{local}: there is neither {corpus['archive']} nor {name} ({', '.join(map(str, places))})"
    )


def write_text(path: Path, counts: dict[str, int], name: str, file: IO[bytes]) -> None:
    """Write one side of a corpus as UTF-8 lines, and count them. Bytes that are not UTF-8 become
    U+FFFD.
    """
    lines = broken = 0
    with path.open("wb") as output:
        for line in segments(file) if ".sgm" in name else file:
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
        source, target = (counts[f"{corpus['name']}.{table[side]}"] for side in SIDES)
        if source != target:
            raise DataError(
                f"{corpus['name']}: {source:,} {table['source']} lines, {target:,} "
                f"{table['target']} lines: "
                f"not parallel. Get {corpus['archive']} again"
            )
        expected = corpus["lines"]
        verdict = "as expected" if source == expected else f"NOT as expected: {expected:,}"
        say(f"  {corpus['name']:<20} {corpus['split']:<6} {source:>11,} lines, {verdict}")
        result[corpus["name"]] = {"split": corpus["split"], "lines": source, "expected": expected}
    return result


def write_small(table: Table, text: Path, out: Path) -> None:
    """Write the first lines of parallel text for every corpus; the training corpora share the
    training lines.
    """
    out.mkdir(parents=True, exist_ok=True)
    training = [corpus["name"] for corpus in table["corpora"] if corpus["split"] == "train"]
    for corpus in table["corpora"]:
        split, name = corpus["split"], corpus["name"]
        part = slice(training.index(name), None, len(training)) if split == "train" else slice(None)
        for language in (table["source"], table["target"]):
            found = filter(
                None, (plain_or_compressed(text / f"{stem}.{language}") for stem in NAMES[split])
            )
            path = next(found, None)
            if path is None:
                raise DataError(
                    f"{text}: there is no {' or '.join(NAMES[split])}.{language}, plain or .gz"
                )
            lines = list(islice(read_lines(path), SMALL[split]))[part]
            (out / f"{name}.{language}").write_text(
                "".join(f"{line}\n" for line in lines), encoding="utf-8"
            )


def main(name: str, out: str, local: str, smoke: str) -> None:
    table = json.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
    folder = Path(local) if local else None
    if smoke:
        text, folder = Path(smoke), Path(out) / "smoke"
        if smoke == "yes":
            text = folder / "numbers"
            write_corpus(text, table["source"], table["target"], train=2000, valid=20, test=20)
        write_small(table, text, folder)
    collect(table, Path(out), folder)


if __name__ == "__main__":
    with user_errors():
        main(*sys.argv[1:])
