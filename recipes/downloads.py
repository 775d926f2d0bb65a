"""Archives from the net or from the user's disk, checked; and what is read out of them."""

from __future__ import annotations

import gzip
import hashlib
import os
import posixpath
import shutil
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

CHUNK = 1 << 20
ATTEMPTS = 5
RECORDED = "recorded"
"""In place of a checksum that nobody published: recorded when the file first comes, and demanded from then on."""
DAMAGE = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error)
"""What reading a damaged archive raises."""


class RecipeError(Exception):
    """Something that the user can mend, and how."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def checksum(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def mirrored(url: str) -> list[str]:
    """Where to look for `url`: on the mirrors that NMT_MIRROR lists (each stands for scheme and host), or there."""
    mirrors = os.environ.get("NMT_MIRROR", "").split()
    path = urlsplit(url).path
    return [mirror.rstrip("/") + path for mirror in mirrors] or [url]


@dataclass(frozen=True)
class Archive:
    """A line of a recipe's table: where the archive is, "KIND:VALUE" or RECORDED, and its size where that is known."""

    url: str
    checksum: str
    bytes: int | None = None

    @property
    def name(self) -> str:
        return posixpath.basename(urlsplit(self.url).path)


class Recorded:
    """The checksums that were recorded when a file first came: FOLDER/checksums.txt, "SHA-256  URL" a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
        self.sums = {url: sum_ for sum_, url in (line.split("  ", 1) for line in lines if line)}

    def expected(self, archive: Archive) -> tuple[str, str]:
        """Kind and value of the checksum that the archive must have; no value where it is not known yet."""
        if archive.checksum != RECORDED:
            kind, _, value = archive.checksum.partition(":")
            return kind, value
        return "sha256", self.sums.get(archive.url, "")

    def add(self, archive: Archive, sum_: str) -> None:
        self.sums[archive.url] = sum_
        self.path.write_text("".join(f"{value}  {key}\n" for key, value in self.sums.items()), encoding="utf-8")
        say(f"  {archive.name}: no checksum is published; recorded in {self.path} and demanded from now on:")
        say(f"    sha256 {sum_}")


def check(path: Path, archive: Archive, recorded: Recorded) -> None:
    """Raises RecipeError unless the file has the archive's size and checksum.

    Where no checksum is known yet, the file must be a whole archive; then its checksum is recorded.
    """
    if archive.bytes not in (None, path.stat().st_size):
        raise refusal(path, archive, f"must have {archive.bytes:,} bytes")
    kind, value = recorded.expected(archive)
    problem = "" if value else damage(path)
    if problem:
        raise refusal(path, archive, f"is no whole archive ({problem}), so its checksum is not recorded")
    found = checksum(path, kind)
    known, remedy = "published", ""
    if archive.checksum == RECORDED:
        known, remedy = f"recorded in {recorded.path}", " (if that is wrong, remove the line)"
    if not value:
        recorded.add(archive, found)
    elif found == value:
        say(f"  {archive.name}: {kind} as {known}")
    else:
        raise refusal(path, archive, f"its {kind} is {found}, but must be {value}, as {known}{remedy}")


def refusal(path: Path, archive: Archive, problem: str) -> RecipeError:
    """What is wrong, where the file should come from, and what it is, for an error page looks like an archive."""
    with path.open("rb") as file:
        begin = file.read(40)
    return RecipeError(
        f"{path}: {problem}. It has {path.stat().st_size:,} bytes and begins with {begin!r}, and should be "
        f"{archive.url}. Get that elsewhere: --local, NMT_MIRROR"
    )


def damage(path: Path) -> str:
    """What is wrong with a tar archive, plain or gzipped, when it is read to its end; nothing where it is whole."""
    try:
        with (
            gzip.open(path) if path.name.endswith("gz") else path.open("rb") as file,
            tarfile.open(fileobj=file, mode="r:") as tar,
        ):
            members = sum(1 for _ in tar)
            end_mark = file.tell() > tar.offset  # a block of zeros; without it, tarfile takes any cut for the end
            zeros = all(not chunk.strip(b"\0") for chunk in iter(partial(file.read, CHUNK), b""))
    except DAMAGE as error:
        return str(error)
    if not members:
        return "it holds nothing"
    return "" if end_mark and zeros else "it ends in the midst"


def download(url: str, path: Path) -> None:
    """Gets `url`, going on with what an earlier, interrupted attempt left in PATH.part."""
    problems = []
    for attempt in range(ATTEMPTS):
        for source in mirrored(url):
            try:
                _download_once(source, path.with_name(path.name + ".part"))
                path.with_name(path.name + ".part").replace(path)
                return
            except (OSError, ValueError) as error:
                problems.append(f"{source}: {error}")
                say(f"  {problems[-1]}")
                if isinstance(error, urllib.error.HTTPError) and error.code in (403, 404, 410):
                    continue
        if all("HTTP Error 4" in problem or "No such file" in problem for problem in problems):
            break
        time.sleep(2**attempt)
    raise RecipeError(
        f"{url} cannot be had: {problems[-1]}. Put {path.name} into a folder and name it with --local, or "
        f"name a mirror: NMT_MIRROR=https://HOST (in place of {urlsplit(url).scheme}://{urlsplit(url).netloc})"
    )


def _download_once(url: str, part: Path) -> None:
    begun = part.stat().st_size if part.exists() and not url.startswith("file:") else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={begun}-"} if begun else {})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to get; the checksum will say whether it is whole
            return
        raise
    with response:
        goes_on = begun and response.status == 206
        left = int(response.headers.get("Content-Length", 0))
        say(f"  {url}: {left / 1e6:,.1f} MB" + (f" after {begun / 1e6:,.1f} MB" if goes_on else ""))
        with part.open("ab" if goes_on else "wb") as file:
            _copy(response, file, left)


def _copy(source: Any, target: IO[bytes], size: int) -> None:
    done, shown, began = 0, time.monotonic(), time.monotonic()
    while chunk := source.read(CHUNK):
        target.write(chunk)
        done += len(chunk)
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            say(f"    {done / 1e6:,.0f} of {size / 1e6:,.0f} MB, {done / 1e6 / (shown - began):.1f} MB/s")
    if size and done < size:
        raise OSError(f"the connection ended after {done} of {size} bytes")


def fetch(archive: Archive, folder: Path, recorded: Recorded, local: Path | None) -> bool:
    """Puts the archive into `folder`, checked: as it is there, from `local`, or downloaded.

    Returns:
        False if there is `local`, and the archive is not in it: nothing is downloaded then.
    """
    path = folder / archive.name
    if path.exists() and recorded.expected(archive)[1]:
        try:
            check(path, archive, recorded)
            return True
        except RecipeError as error:
            say(f"  {error}")
            say("  it is done again")
    path.unlink(missing_ok=True)
    if local is not None:
        if not (local / archive.name).is_file():
            return False
        check(local / archive.name, archive, recorded)
        path.symlink_to((local / archive.name).resolve())
        return True
    download(archive.url, path)
    try:
        check(path, archive, recorded)
    except RecipeError:
        path.unlink()
        raise
    return True


def read_members(archive: Path, members: dict[str, Callable[[IO[bytes]], None]]) -> None:
    """Reads the named members of a tar archive in one pass, each by its function; a .gz inside is unpacked.

    No name from inside the archive becomes a path on the disk: the caller's functions know where things go.
    """
    missing = set(members)
    try:
        with tarfile.open(archive, "r|*") as tar:
            for member in tar:
                name = posixpath.normpath(member.name)
                if name not in missing or not member.isreg():
                    continue
                file = tar.extractfile(member)
                assert file is not None  # a regular file
                members[name](gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file)  # type: ignore[arg-type]
                missing.remove(name)
                if not missing:
                    return
    except DAMAGE as error:
        raise RecipeError(f"{archive}: a damaged archive: {error}") from None
    raise RecipeError(f"{archive}: lacks {', '.join(sorted(missing))}. Is it another edition of that archive?")


def open_text(path: Path) -> IO[bytes]:
    """A file, plain or .gz."""
    return gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def enough_room(folder: Path, needed: int) -> None:
    """Raises RecipeError where the disk has no room for `needed` bytes."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RecipeError(
            f"{folder}: {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free. Choose another --out"
        )
