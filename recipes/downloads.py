"""Download, check and read archives."""

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import wrap_file

from nmt_cli.errors import DataError

ATTEMPTS = 5
RECORDED = "recorded"
"""In place of a checksum that is not published: it is recorded after the first download and
required from then on.
"""
DAMAGE = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error)
"""The errors of reading a damaged archive."""
Reader = Callable[[str, IO[bytes]], None]  # of a text file: its name and content


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Archive:
    """An archive of a recipe's table. The checksum is "KIND:VALUE" or RECORDED."""

    url: str
    checksum: str

    @property
    def name(self) -> str:
        return posixpath.basename(urlsplit(self.url).path)


def recorded(record: Path) -> dict[str, str]:
    """Return the SHA-256 by URL of the archives without a published checksum."""
    lines = record.read_text(encoding="utf-8").split("\n")[:-1] if record.exists() else []
    return {url: value for value, _, url in (line.partition("  ") for line in lines)}


def check(path: Path, archive: Archive, record: Path) -> None:
    """Raise DataError unless the file has the archive's checksum; record an unpublished one, if it
    is an archive.
    """
    kind, _, expected = archive.checksum.partition(":")
    remedy = ""
    if archive.checksum == RECORDED:
        kind, expected = "sha256", recorded(record).get(archive.url, "")
        remedy = f", as recorded in {record} (if that is wrong, remove the line)"
    with path.open("rb") as file:
        begin = file.read(40)  # shown, since the file may be an error page
        file.seek(0)
        found = hashlib.file_digest(file, kind).hexdigest()
    if expected:
        problem = (
            "" if found == expected else f"its {kind} is {found}, but must be {expected}{remedy}"
        )
    else:
        problem = damage(path)
    if problem:
        raise DataError(
            f"{path}: {problem}. It has {path.stat().st_size:,} bytes and begins with {begin!r}. "
            "The archive is "
            f"{archive.url}; other sources: --local, NMT_MIRROR"
        )
    say(f"  {archive.name}: {kind} {found}")
    if not expected:
        with record.open("a", encoding="utf-8") as file:
            file.write(f"{found}  {archive.url}\n")
        say(
            f"  {archive.name}: no checksum is published; recorded in {record} and required from "
            "now on"
        )


def damage(path: Path) -> str:
    """Return what is wrong with a tar archive, or an empty string."""
    try:
        with tarfile.open(path) as tar:
            return "" if sum(1 for _ in tar) else "it is empty"
    except DAMAGE as error:
        return f"it is not a whole archive ({error})"


def download(url: str, path: Path) -> None:
    """Download `url`, from the mirrors of NMT_MIRROR if it is set; continue an interrupted
    download, PATH.part.
    """
    parts = urlsplit(url)
    mirrors = [
        mirror.rstrip("/") + parts.path for mirror in os.environ.get("NMT_MIRROR", "").split()
    ]
    partial = path.with_name(path.name + ".part")
    problem = ""
    for attempt in range(ATTEMPTS):
        final = True  # whether no server may answer otherwise later
        for source in mirrors or [url]:
            try:
                download_once(source, partial)
            except (OSError, ValueError) as error:
                problem = f"{source}: {error}"
                say(f"  {problem}")
                final = final and isinstance(error, urllib.error.HTTPError) and error.code < 500
            else:
                partial.replace(path)
                return
        if final:
            break
        time.sleep(2**attempt)
    raise DataError(
        f"cannot download {url}: {problem}. Put {path.name} into a directory and pass it with "
        "--local, or set "
        f"NMT_MIRROR=https://HOST, a mirror of {parts.scheme}://{parts.netloc}"
    )


def download_once(url: str, part: Path) -> None:
    begun = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={begun}-"} if begun else {})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to download
            return
        raise
    size = int(response.headers.get("Content-Length", 0))
    begun = begun if response.status == 206 else 0  # a server without ranges sends the whole file
    shown = wrap_file(response, size, description=url, console=Console(stderr=True))
    with response, part.open("ab" if begun else "wb") as file, shown as content:
        shutil.copyfileobj(content, file)
    if part.stat().st_size < begun + size:
        raise OSError(f"the connection ended after {part.stat().st_size - begun} of {size} bytes")


def fetch(archive: Archive, folder: Path, record: Path, local: Path | None) -> bool:
    """Keep the checked archive in `folder`, link the one in `local`, or download it.

    Returns:
        False if `local` is given and does not have the archive: then nothing is downloaded.
    """
    path = folder / archive.name
    if path.exists():
        try:
            check(path, archive, record)
            return True
        except DataError as error:
            say(f"  {error}")
    path.unlink(missing_ok=True)
    if local is None:
        download(archive.url, path)
    elif (local / archive.name).is_file():
        path.symlink_to((local / archive.name).resolve())
    else:
        return False
    try:
        check(path, archive, record)
    except DataError:
        path.unlink()
        raise
    return True


def read_members(archive: Path, members: Mapping[str, Reader]) -> None:
    """Pass the named members of a tar archive to their functions, in one pass; a .gz inside is
    unpacked.

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
                members[name](name, unpacked(name, file))
                missing.remove(name)
                if not missing:
                    return
    except DAMAGE as error:
        raise DataError(f"{archive}: a damaged archive: {error}") from None
    raise DataError(
        f"{archive}: lacks {', '.join(sorted(missing))}. It may be another edition of the archive."
    )


def unpacked(name: str, file: IO[bytes]) -> IO[bytes]:
    """Return the content of a file, plain or .gz."""
    return gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file  # type: ignore[return-value]
