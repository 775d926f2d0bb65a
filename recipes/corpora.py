"""The text of a recipe: fetched, checked, read out of its archives, counted. A table, RECIPE.json, says what there is.

corpora.py fetch TABLE OUT [--local DIR]   archives, or links to them, in OUT/downloads
corpora.py extract TABLE OUT               OUT/text/NAME.en and so on, and counts.json
corpora.py prefixes TABLE SPLIT            the names of the corpora of a split
corpora.py settings TABLE                  a checksum of what the table says to each of: fetch, extract, nmt prepare
corpora.py small TABLE FOLDER OUT          OUT/TABLE and small archives of the same layout, from parallel text in FOLDER
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import re
import sys
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from downloads import (
    CHUNK,
    RECORDED,
    Archive,
    RecipeError,
    Recorded,
    checksum,
    enough_room,
    fetch,
    open_text,
    read_members,
    say,
)

SIDES = ("source", "target")
SMALL = {"train": 2000, "valid": 100, "test": 50}
"""Lines of the splits of a small copy."""
SPLIT_NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}
"""How the files of a folder of parallel text begin."""

Table = dict[str, Any]


def read_table(path: Path) -> Table:
    table: Table = json.loads(path.read_text(encoding="utf-8"))
    return table


def archive_name(archive: Table) -> str:
    return Archive(**archive).name


def settings(table: Table) -> list[str]:
    """Checksums of what fetching, extracting and preparing take from the table: another one is another setting."""
    languages = [table[side] for side in SIDES]
    archives = [{**archive, "url": place(archive["url"])} for archive in table["archives"]]
    members = [[corpus[key] for key in ("name", "archive", *SIDES)] for corpus in table["corpora"]]
    parts = (
        [archives, languages, members],  # the members, since --local may hold them unpacked
        [list(map(archive_name, archives)), languages, table["corpora"]],
        [languages, [[corpus["name"], corpus["split"]] for corpus in table["corpora"]]],
    )
    return [hashlib.sha256(json.dumps(part, sort_keys=True).encode("utf-8")).hexdigest()[:16] for part in parts]


def place(url: str) -> str:
    """The address, without the folder if that is on this disk: folders may be moved."""
    return url.rsplit("/", 1)[-1] if url.startswith("file:") else url


def fetch_all(table: Table, out: Path, local: Path | None) -> None:
    """Every archive of the table, or in `local` the text files that were in it."""
    folder = out / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    absent = [archive for archive in table["archives"] if not (folder / archive_name(archive)).exists()]
    enough_room(folder, 0 if local else sum(archive.get("bytes", 0) for archive in absent))
    recorded = Recorded(out / "checksums.txt")
    for archive in table["archives"]:
        if not fetch(Archive(**archive), folder, recorded, local):
            for corpus in corpora_of(table, archive_name(archive)):
                link_loose(table, corpus, folder, local)


def corpora_of(table: Table, archive: str) -> list[Table]:
    return [corpus for corpus in table["corpora"] if corpus["archive"] == archive]


def link_loose(table: Table, corpus: Table, folder: Path, local: Path | None) -> None:
    """Links the two text files of a corpus that the user has unpacked already."""
    assert local is not None  # an archive is missing only there
    for side in SIDES:
        found = next((path for path in loose_places(table, corpus, side, local) if path.is_file()), None)
        if found is None:
            looked = ", ".join(str(path.relative_to(local)) for path in loose_places(table, corpus, side, local))
            raise RecipeError(
                f"{local}: holds neither {corpus['archive']} nor its {table[side]} text, which may be named {looked}"
            )
        link = folder / (f"{corpus['name']}.{table[side]}" + "".join(found.suffixes[-1:]))
        link.unlink(missing_ok=True)
        link.symlink_to(found.resolve())
        say(f"  {corpus['name']}: {found}")


def loose_places(table: Table, corpus: Table, side: str, local: Path) -> Iterator[Path]:
    """Where a corpus's text may lie: named as in the archive, with or without its folder, or as the recipe names it."""
    member = Path(corpus[side])
    for name in (member, Path(member.name), Path(f"{corpus['name']}.{table[side]}")):
        yield local / name
        yield local / name.with_name(name.name + ".gz")


def extract_all(table: Table, out: Path) -> None:
    """The text of every corpus, a sentence a line, and how many lines there are."""
    text = out / "text"
    text.mkdir(parents=True, exist_ok=True)
    counts: dict[tuple[str, str], int] = {}
    for archive in map(archive_name, table["archives"]):
        readers: dict[str, Callable[[IO[bytes]], None]] = {}
        for corpus in corpora_of(table, archive):
            for side in SIDES:
                target = text / f"{corpus['name']}.{table[side]}"
                readers[corpus[side]] = partial(write_text, target, counts, (corpus["name"], side), corpus[side])
        if (out / "downloads" / archive).exists():
            read_members(out / "downloads" / archive, readers)
        else:
            read_loose(table, archive, out / "downloads", readers)
    report_counts(table, counts, text / "counts.json")


def read_loose(table: Table, archive: str, folder: Path, readers: dict[str, Callable[[IO[bytes]], None]]) -> None:
    for corpus in corpora_of(table, archive):
        for side in SIDES:
            link = next(folder.glob(f"{corpus['name']}.{table[side]}.*"))
            with open_text(link.resolve()) as file:
                readers[corpus[side]](file)


def write_text(
    path: Path, counts: dict[tuple[str, str], int], key: tuple[str, str], member: str, file: IO[bytes]
) -> None:
    """Writes one side of a corpus as UTF-8 lines, and counts them. Bytes that are no UTF-8 become U+FFFD."""
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
        say(f"  {path.name}: bytes that are no UTF-8 were replaced by U+FFFD, in {broken} blocks of {CHUNK >> 20} MiB")


def blocks(file: IO[bytes]) -> Iterator[bytes]:
    """The file in blocks that end with a line."""
    rest = b""
    while chunk := file.read(CHUNK):
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield rest + head + newline
            rest = tail
        else:
            rest += chunk
    if rest:
        yield rest + b"\n"


def segments(file: IO[bytes]) -> Iterator[bytes]:
    """The sentences of a test set in WMT's markup: <seg id="1">text</seg>, one a line."""
    for line in file:
        match = re.match(rb"\s*<seg[^>]*>(.*)</seg>", line, flags=re.IGNORECASE)
        if match:
            yield match[1].strip() + b"\n"


def report_counts(table: Table, counts: dict[tuple[str, str], int], path: Path) -> None:
    """Shows the line counts beside the expected ones, and writes them down."""
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


def make_small(table: Table, folder: Path, out: Path) -> Table:
    """A copy of the table whose archives are small, and made from the parallel text in `folder`."""
    pairs = {split: read_split(folder, table, split) for split in SPLIT_NAMES}
    archives = out / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    training = [corpus for corpus in table["corpora"] if corpus["split"] == "train"]
    share = len(pairs["train"]) // len(training)
    parts: dict[str, list[tuple[bytes, bytes]]] = {
        corpus["name"]: pairs["train"][i * share : (i + 1) * share] for i, corpus in enumerate(training)
    }
    small = {**table, "archives": [], "corpora": []}
    for corpus in table["corpora"]:
        parts.setdefault(corpus["name"], pairs[corpus["split"]])
        small["corpora"].append({**corpus, "lines": len(parts[corpus["name"]])})
    unpublished = {archive_name(archive) for archive in table["archives"] if archive["checksum"] == RECORDED}
    for name in map(archive_name, table["archives"]):
        with tarfile.open(archives / name, "w:gz" if name.endswith("gz") else "w") as tar:
            for corpus in corpora_of(table, name):
                for side, column in zip(SIDES, (0, 1), strict=True):
                    add_member(tar, corpus[side], [pair[column] for pair in parts[corpus["name"]]])
        known = RECORDED if name in unpublished else f"sha256:{checksum(archives / name, 'sha256')}"
        size = (archives / name).stat().st_size
        small["archives"].append({"url": (archives / name).resolve().as_uri(), "bytes": size, "checksum": known})
    return small


def read_split(folder: Path, table: Table, split: str) -> list[tuple[bytes, bytes]]:
    """The first pairs of train, valid or test in `folder` or the first folder below that has all three."""
    for place in [folder, *sorted(path for path in folder.rglob("*") if path.is_dir())]:
        prefixes = {name: find_prefix(place, table, name) for name in SPLIT_NAMES}
        if all(prefixes.values()):
            files = [existing(f"{prefixes[split]}.{table[side]}") for side in SIDES]
            if split == "train":
                say(f"  a small corpus from {place}")
            return list(zip(*(first_lines(file, SMALL[split]) for file in files), strict=True))
    raise RecipeError(
        f"{folder}: no folder there holds train, valid (or val, dev) and test, each with .{table['source']} and "
        f".{table['target']}, plain or .gz. Name another one, or none: then a corpus of number names is made"
    )


def find_prefix(folder: Path, table: Table, split: str) -> str | None:
    names = (path.name for path in sorted(folder.iterdir()) if path.name.startswith(SPLIT_NAMES[split]))
    for name in names:
        prefix = folder / re.sub(rf"\.{table['source']}(\.gz)?$", "", name)
        if prefix.name != name and all(existing(f"{prefix}.{table[side]}") for side in SIDES):
            return str(prefix)
    return None


def existing(path: str) -> Path | None:
    return next((p for p in (Path(path), Path(path + ".gz")) if p.is_file()), None)


def first_lines(path: Path | None, count: int) -> list[bytes]:
    assert path is not None
    with open_text(path) as file:
        return [line.rstrip(b"\r\n") for line, _ in zip(file, range(count), strict=False)]


def add_member(tar: tarfile.TarFile, name: str, lines: list[bytes]) -> None:
    if name.endswith(".sgm"):
        lines = [b'<doc docid="small">', *(b'<seg id="%d">%s</seg>' % item for item in enumerate(lines, 1)), b"</doc>"]
    content = b"".join(line + b"\n" for line in lines)
    if name.endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("fetch", "extract", "prefixes", "settings", "small"):
        command = commands.add_parser(name)
        command.add_argument("table", type=Path)
        if name == "prefixes":
            command.add_argument("split", choices=SPLIT_NAMES)
        if name == "small":
            command.add_argument("folder", type=Path)
        if name not in ("prefixes", "settings"):
            command.add_argument("out", type=Path)
        if name == "fetch":
            command.add_argument("--local", type=Path)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    try:
        table = read_table(options.table)
        if options.command == "fetch":
            fetch_all(table, options.out, options.local)
        elif options.command == "extract":
            extract_all(table, options.out)
        elif options.command == "prefixes":
            print("\n".join(corpus["name"] for corpus in table["corpora"] if corpus["split"] == options.split))
        elif options.command == "settings":
            print(*settings(table))
        else:
            small = make_small(table, options.folder, options.out)
            (options.out / options.table.name).write_text(json.dumps(small, indent=2) + "\n", encoding="utf-8")
    except (RecipeError, OSError) as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
