"""The text of a recipe, as a table (recipes/wmt14_en_de.json) describes it.

corpora.py TABLE OUT LOCAL SMOKE    OUT/downloads: the archives, checked; then OUT/text, complete or absent: NAME.en and
                                    so on, and counts.json

LOCAL   a directory with the archives, or with the text files out of them; nothing is downloaded then; or ""
SMOKE   a directory of parallel text, the first lines of which stand for every corpus; "yes": number names; or ""
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from downloads import (
    CHUNK,
    Archive,
    RecipeError,
    Recorded,
    fetch,
    open_text,
    read_members,
    say,
)
from number_names import write_corpus

from nmt_cli.errors import NmtError

SIDES = ("source", "target")
SMALL = {"train": 2000, "valid": 100, "test": 50}
"""Lines of little text."""
SPLIT_NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}
"""Beginnings of the names of the files of parallel text."""

Table = dict[str, Any]


def read_table(path: Path) -> Table:
    """Read a table: a file, or the name of one beside this script."""
    table: Table = json.loads((path if path.exists() else Path(__file__).parent / path).read_text(encoding="utf-8"))
    return table


def archive_name(archive: Table) -> str:
    return Archive(**archive).name


def corpora_of(table: Table, archive: str) -> list[Table]:
    return [corpus for corpus in table["corpora"] if corpus["archive"] == archive]


def fetch_all(table: Table, out: Path, local: Path | None) -> None:
    """Get every archive of the table, or link the text files from it."""
    folder = out / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    absent = [archive for archive in table["archives"] if not (folder / archive_name(archive)).exists()]
    needed, free = sum(archive.get("bytes", 0) for archive in absent), shutil.disk_usage(folder).free
    if free < needed and local is None:
        raise RecipeError(f"{folder}: {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free. Change --out")
    recorded = Recorded(out / "checksums.txt")
    for archive in table["archives"]:
        if not fetch(Archive(**archive), folder, recorded, local):
            for corpus in corpora_of(table, archive_name(archive)):
                for side in SIDES:
                    link_text(table, corpus, side, folder, local)


def link_text(table: Table, corpus: Table, side: str, folder: Path, local: Path | None) -> None:
    """Link an unpacked text file in `local`: named as in its archive, with or without directory, or as in the table."""
    assert local is not None  # an archive is missing only there
    member, ours = Path(corpus[side]), f"{corpus['name']}.{table[side]}"
    places = [place for name in (member, Path(member.name), Path(ours)) for place in (name, Path(f"{name}.gz"))]
    found = next((local / place for place in places if (local / place).is_file()), None)
    if found is None:
        names = ", ".join(map(str, places))
        raise RecipeError(f"{local}: there is neither {corpus['archive']} nor its {table[side]} text ({names})")
    link = folder / (ours + "".join(found.suffixes[-1:]))
    link.unlink(missing_ok=True)
    link.symlink_to(found.resolve())
    say(f"  {corpus['name']}: {found}")


def extract_all(table: Table, out: Path) -> None:
    """Write the text of every corpus, a sentence a line, and its number of lines."""
    downloads, text = out / "downloads", out / "text.part"
    text.mkdir(parents=True, exist_ok=True)
    counts: dict[tuple[str, str], int] = {}
    for archive in map(archive_name, table["archives"]):
        readers: dict[str, Callable[[IO[bytes]], None]] = {}
        for corpus in corpora_of(table, archive):
            for side in SIDES:
                name = f"{corpus['name']}.{table[side]}"
                read = partial(write_text, text / name, counts, (corpus["name"], side))
                readers[corpus[side]] = partial(read, corpus[side])
                if not (downloads / archive).exists():
                    path = next(downloads.glob(f"{name}.*")).resolve()
                    with open_text(path) as file:
                        read(path.name, file)
        if (downloads / archive).exists():
            read_members(downloads / archive, readers)
    report_counts(table, counts, text / "counts.json")
    text.rename(out / "text")


def write_text(
    path: Path, counts: dict[tuple[str, str], int], key: tuple[str, str], member: str, file: IO[bytes]
) -> None:
    """Write one side of a corpus as UTF-8 lines, and count them. Bytes that are not UTF-8 become U+FFFD."""
    lines = broken = 0
    with path.open("wb") as output:
        for block in segments(file) if ".sgm" in member else blocks(file):
            try:
                block.decode("utf-8")
            except UnicodeDecodeError:
                broken += 1
                block = block.decode("utf-8", errors="replace").encode("utf-8")
            output.write(block)
            lines += block.count(b"\n")
    counts[key] = lines
    if broken:
        say(f"  {path.name}: bytes that are not UTF-8 became U+FFFD, in {broken} blocks of {CHUNK >> 20} MiB")


def blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Read the file in blocks of whole lines."""
    while block := file.read(CHUNK):
        block += file.readline()
        yield block if block.endswith(b"\n") else block + b"\n"


def segments(file: IO[bytes]) -> Iterator[bytes]:
    """Read the sentences of a test set in WMT's markup, <seg id="1">text</seg>, one a line."""
    for line in file:
        match = re.match(rb"\s*<seg[^>]*>(.*)</seg>", line, flags=re.IGNORECASE)
        if match:
            yield match[1].strip() + b"\n"


def report_counts(table: Table, counts: dict[tuple[str, str], int], path: Path) -> None:
    """Print the line counts beside the expected ones, and write them to `path`."""
    result = {}
    for corpus in table["corpora"]:
        source, target = (counts[corpus["name"], side] for side in SIDES)
        if source != target:
            raise RecipeError(
                f"{corpus['name']}: {source:,} {table['source']} lines, {target:,} {table['target']} lines: "
                f"not parallel. Get {corpus['archive']} again"
            )
        expected = corpus["lines"]
        verdict = "as expected" if source == expected else f"NOT as expected: {expected:,}"
        say(f"  {corpus['name']:<20} {corpus['split']:<6} {source:>11,} lines, {verdict}")
        result[corpus["name"]] = {"split": corpus["split"], "lines": source, "expected": expected}
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def write_small(table: Table, text: Path, out: Path) -> None:
    """Write every corpus of the table to `out`, with the first lines of the parallel text in `text`."""
    files = find_splits(text, table)
    out.mkdir(parents=True, exist_ok=True)
    training = [corpus["name"] for corpus in table["corpora"] if corpus["split"] == "train"]
    for corpus in table["corpora"]:
        split, name = corpus["split"], corpus["name"]
        part = slice(training.index(name), None, len(training)) if split == "train" else slice(None)
        for side, path in zip(SIDES, files[split], strict=True):
            with open_text(path) as file:
                lines = list(itertools.islice(file, SMALL[split]))
            (out / f"{name}.{table[side]}").write_bytes(b"".join(lines[part]))


def find_splits(text: Path, table: Table) -> dict[str, list[Path]]:
    """Find both sides of train, valid and test in `text`, or in the first directory below that has them all."""
    for place in [text, *sorted(path for path in text.rglob("*") if path.is_dir())]:
        found: dict[str, list[Path]] = {}
        for source in sorted(place.glob(f"*.{table['source']}*")):
            prefix = source.name.partition(f".{table['source']}")[0]
            targets = sorted(place.glob(f"{prefix}.{table['target']}*"))
            for split, names in SPLIT_NAMES.items():
                if prefix.startswith(names) and targets:
                    found.setdefault(split, [source, targets[0]])
        if len(found) == len(SPLIT_NAMES):
            say(f"  the text of {place}")
            return found
    raise RecipeError(
        f"{text}: no directory there has train, valid (or val, dev) and test, each with .{table['source']} and "
        f".{table['target']}, plain or .gz"
    )


def write_all(table: Table, out: Path, local: Path | None, smoke: str) -> None:
    if smoke:
        text, local = Path(smoke), out / "smoke"
        if smoke == "yes":
            text = local / "numbers"
            write_corpus(text, table["source"], table["target"], train=2000, valid=20, test=20)
        write_small(table, text, local)
    fetch_all(table, out, local)
    extract_all(table, out)


def main() -> int:
    table, out, local, smoke = sys.argv[1:]
    try:
        write_all(read_table(Path(table)), Path(out), Path(local) if local else None, smoke)
    except (RecipeError, NmtError, OSError) as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
