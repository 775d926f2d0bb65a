"""Download, check and read archives."""

from __future__ import annotations

import gzip
import hashlib
import os
import posixpath
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

CHUNK = 1 << 20
ATTEMPTS = 5
RECORDED = "recorded"
"""In place of a checksum that is not published: it is recorded after the first download and required from then on."""
DAMAGE = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error)
"""The errors of reading a damaged archive."""


class RecipeError(Exception):
    """An error that the user can correct; the message says how."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def checksum(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


@dataclass(frozen=True)
class Archive:
    """An archive of a recipe's table. The checksum is "KIND:VALUE" or RECORDED."""

    url: str
    checksum: str
    bytes: int | None = None

    @property
    def name(self) -> str:
        return posixpath.basename(urlsplit(self.url).path)


class Recorded(dict[str, str]):
    """SHA-256 by URL of the archives without a published checksum, kept in a file."""

    def __init__(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        super().__init__((url, value) for value, url in (line.split("  ", 1) for line in lines))
        self.path = path

    def add(self, archive: Archive, value: str) -> None:
        self[archive.url] = value
        self.path.write_text("".join(f"{value}  {url}\n" for url, value in self.items()), encoding="utf-8")
        say(f"  {archive.name}: no checksum is published; recorded in {self.path} and required from now on")


def check(path: Path, archive: Archive, recorded: Recorded) -> None:
    """Raise RecipeError unless the file has the archive's size and checksum.

    An unpublished checksum is recorded, if the file is an archive.
    """
    if archive.bytes not in (None, path.stat().st_size):
        raise refusal(path, archive, f"it must have {archive.bytes:,} bytes")
    kind, _, expected = archive.checksum.partition(":")
    remedy = ""
    if archive.checksum == RECORDED:
        kind, expected = "sha256", recorded.get(archive.url, "")
        remedy = f", as recorded in {recorded.path} (if that is wrong, remove the line)"
    found = checksum(path, kind)
    if expected and found != expected:
        raise refusal(path, archive, f"its {kind} is {found}, but must be {expected}{remedy}")
    say(f"  {archive.name}: {kind} {found}")
    if not expected:
        problem = damage(path)
        if problem:
            raise refusal(path, archive, f"it is not a whole archive ({problem})")
        recorded.add(archive, found)


def refusal(path: Path, archive: Archive, problem: str) -> RecipeError:
    """Return the error for a wrong file. It shows the first bytes, since the file may be an error page."""
    with path.open("rb") as file:
        begin = file.read(40)
    return RecipeError(
        f"{path}: {problem}. It has {path.stat().st_size:,} bytes and begins with {begin!r}. The archive is "
        f"{archive.url}; other sources: --local, NMT_MIRROR"
    )


def damage(path: Path) -> str:
    """Return what is wrong with a tar archive, or an empty string."""
    try:
        with tarfile.open(path) as tar:
            return "" if sum(1 for _ in tar) else "it is empty"
    except DAMAGE as error:
        return str(error)


def download(url: str, path: Path) -> None:
    """Download `url`, from the mirrors of NMT_MIRROR if it is set; continue an interrupted download, PATH.part."""
    parts = urlsplit(url)
    mirrors = [mirror.rstrip("/") + parts.path for mirror in os.environ.get("NMT_MIRROR", "").split()]
    partial = path.with_name(path.name + ".part")
    problem = ""
    for attempt in range(ATTEMPTS):
        retry = False
        for source in mirrors or [url]:
            try:
                _download_once(source, partial)
                partial.replace(path)
                return
            except (OSError, ValueError) as error:
                problem = f"{source}: {error}"
                say(f"  {problem}")
                missing = isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500
                retry = retry or not (missing or "No such file" in str(error))
        if not retry:
            break
        time.sleep(2**attempt)
    raise RecipeError(
        f"cannot download {url}: {problem}. Put {path.name} into a directory and pass it with --local, or set "
        f"NMT_MIRROR=https://HOST, a mirror of {parts.scheme}://{parts.netloc}"
    )


def _download_once(url: str, part: Path) -> None:
    begun = part.stat().st_size if part.exists() and not url.startswith("file:") else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={begun}-"} if begun else {})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to download
            return
        raise
    with response:
        continues = begun and response.status == 206
        size, done, shown = int(response.headers.get("Content-Length", 0)), 0, time.monotonic()
        say(f"  {url}: {size / 1e6:,.1f} MB" + (f" after {begun / 1e6:,.1f} MB" if continues else ""))
        with part.open("ab" if continues else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                if time.monotonic() - shown > 10:
                    shown = time.monotonic()
                    say(f"    {done / 1e6:,.0f} of {size / 1e6:,.0f} MB")
        if done < size:
            raise OSError(f"the connection ended after {done} of {size} bytes")


def fetch(archive: Archive, folder: Path, recorded: Recorded, local: Path | None) -> bool:
    """Keep the checked archive in `folder`, link the one in `local`, or download it.

    Returns:
        False if `local` is given and does not have the archive: then nothing is downloaded.
    """
    path = folder / archive.name
    if path.exists() and (archive.checksum != RECORDED or archive.url in recorded):
        try:
            check(path, archive, recorded)
            return True
        except RecipeError as error:
            say(f"  {error}")
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
    """Pass the named members of a tar archive to their functions, in one pass; a .gz inside is unpacked.

    Names inside the archive never become paths on the disk.
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
    raise RecipeError(f"{archive}: lacks {', '.join(sorted(missing))}. It may be another edition of the archive.")


def open_text(path: Path) -> IO[bytes]:
    """Open a file, plain or .gz."""
    return gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb")  # type: ignore[return-value]
