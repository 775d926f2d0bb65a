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
# In place of a checksum that is not published. It is recorded after the first download and required
# from then on.
RECORDED = "recorded"
# The errors of reading a damaged archive.
DAMAGE = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error)
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
    checksums: dict[str, str] = {}
    if record.exists():
        for line in record.read_text(encoding="utf-8").split("\n")[:-1]:
            checksum, _, url = line.partition("  ")
            checksums[url] = checksum
    return checksums


def check(path: Path, archive: Archive, record: Path) -> None:
    """Check the checksum of a file. A checksum that is not published is recorded.

    Raises:
        DataError: the checksum is another one, or the file is no archive.
    """
    kind, _, expected = archive.checksum.partition(":")
    remedy = ""
    if archive.checksum == RECORDED:
        kind = "sha256"
        expected = recorded(record).get(archive.url, "")
        remedy = f", as recorded in {record} (if that is wrong, remove the line)"
    with path.open("rb") as file:
        beginning = file.read(40)  # shown, since the file may be an error page
        file.seek(0)
        checksum = hashlib.file_digest(file, kind).hexdigest()
    problem = ""
    if not expected:
        problem = damage(path)
    elif checksum != expected:
        problem = f"its {kind} is {checksum}, but must be {expected}{remedy}"
    if problem:
        raise DataError(
            f"{path}: {problem}. It has {path.stat().st_size:,} bytes and begins with "
            f"{beginning!r}. The archive is {archive.url}; other sources: --local, NMT_MIRROR"
        )
    say(f"  {archive.name}: {kind} {checksum}")
    if not expected:
        with record.open("a", encoding="utf-8") as file:
            file.write(f"{checksum}  {archive.url}\n")
        say(
            f"  {archive.name}: no checksum is published; recorded in {record} and required from "
            "now on"
        )


def damage(path: Path) -> str:
    """Return what is wrong with a tar archive, or an empty string."""
    try:
        with tarfile.open(path) as tar:
            members = sum(1 for _ in tar)
    except DAMAGE as error:
        return f"it is not a whole archive ({error})"
    if members == 0:
        return "it is empty"
    return ""


def download(url: str, path: Path) -> None:
    """Download `url`, from the mirrors of NMT_MIRROR if it is set.

    An interrupted download, PATH.part, goes on.
    """
    parts = urlsplit(url)
    mirrors = os.environ.get("NMT_MIRROR", "").split()
    sources = [mirror.rstrip("/") + parts.path for mirror in mirrors]
    partial = path.with_name(path.name + ".part")
    problem = ""
    for attempt in range(ATTEMPTS):
        final = True  # whether no server may answer otherwise later
        for source in sources or [url]:
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
        f"--local, or set NMT_MIRROR=https://HOST, a mirror of {parts.scheme}://{parts.netloc}"
    )


def download_once(url: str, part: Path) -> None:
    headers = {}
    start = 0
    if part.exists():
        start = part.stat().st_size
    if start > 0:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to download
            return
        raise
    size = int(response.headers.get("Content-Length", 0))
    if response.status != 206:  # a server without ranges sends the whole file
        start = 0
    shown = wrap_file(response, size, description=url, console=Console(stderr=True))
    with response, part.open("ab" if start > 0 else "wb") as file, shown as content:
        shutil.copyfileobj(content, file)
    received = part.stat().st_size - start
    if received < size:
        raise OSError(f"the connection ended after {received} of {size} bytes")


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
    """Pass the named members of a tar archive to their functions, in one pass.

    A .gz inside is unpacked. Names inside the archive never become paths on the disk.
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
    if name.endswith(".gz"):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    return file
