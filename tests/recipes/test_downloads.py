"""Downloading, checking and reading archives."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, ClassVar

import downloads
import pytest
from downloads import RECORDED, Archive

from nmt_cli.errors import DataError

CONTENT = bytes(range(256)) * 40


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT at /a/file.tgz. Ranges of it if `ranges` is set."""

    ranges = True
    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        if self.path != "/a/file.tgz":
            self.send_error(404)
            return
        wanted = self.headers.get("Range")
        type(self).asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start:])

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delenv("NMT_MIRROR", raising=False)
    monkeypatch.setattr(downloads.time, "sleep", lambda seconds: None)
    Handler.ranges, Handler.asked = True, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http_server:
        threading.Thread(target=http_server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http_server.server_address[1]}"
        http_server.shutdown()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_continues(server: str, tmp_path: Path, ranges: bool) -> None:
    Handler.ranges = ranges
    (tmp_path / "file.tgz.part").write_bytes(CONTENT[:1000])
    downloads.download(f"{server}/a/file.tgz", tmp_path / "file.tgz")
    assert Handler.asked == ["bytes=1000-"]
    assert (tmp_path / "file.tgz").read_bytes() == CONTENT
    assert not (tmp_path / "file.tgz.part").exists()


def test_mirrors_are_tried_in_turn(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="404"):
        downloads.download(f"{server}/gone.tgz", tmp_path / "gone.tgz")
    monkeypatch.setenv("NMT_MIRROR", f"{tmp_path.as_uri()} {server}")
    downloads.download("https://nowhere.invalid/a/file.tgz", tmp_path / "file.tgz")
    assert (tmp_path / "file.tgz").read_bytes() == CONTENT


def test_published_checksums_are_required(server: str, tmp_path: Path) -> None:
    record, url = tmp_path / "checksums.txt", f"{server}/a/file.tgz"
    with pytest.raises(DataError, match=r"must be 00.* 10,240 bytes .*b'\\x00\\x01"):
        downloads.fetch(Archive(url, "md5:00"), tmp_path, record, None)
    assert not (tmp_path / "file.tgz").exists()
    assert downloads.fetch(Archive(url, f"sha256:{sha256(CONTENT)}"), tmp_path, record, None)
    assert not record.exists()


def test_an_unpublished_checksum_is_recorded_and_required_from_then_on(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = packed({"a.en": b"one\n"})
    monkeypatch.setattr(f"{__name__}.CONTENT", content)
    archive, record = Archive(f"{server}/a/file.tgz", RECORDED), tmp_path / "checksums.txt"
    downloads.fetch(archive, tmp_path, record, None)
    assert record.read_text(encoding="utf-8") == f"{sha256(content)}  {archive.url}\n"
    (tmp_path / "file.tgz").write_bytes(b"damaged on the disk")
    downloads.fetch(archive, tmp_path, record, None)
    assert (tmp_path / "file.tgz").read_bytes() == content
    downloads.fetch(archive, tmp_path, record, None)
    assert len(Handler.asked) == 2  # the first and the damaged one
    (tmp_path / "file.tgz").unlink()
    monkeypatch.setattr(f"{__name__}.CONTENT", packed({"a.en": b"two\n"}))
    with pytest.raises(DataError, match=r"checksums\.txt"):
        downloads.fetch(archive, tmp_path, record, None)


def test_what_is_no_whole_archive_is_not_recorded(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error page is shown."""
    whole = packed({"a.en": CONTENT * 20, "b.en": b"one\n"})
    archive, record = Archive(f"{server}/a/file.tgz", RECORDED), tmp_path / "checksums.txt"
    for content in (
        b"",
        b"<!DOCTYPE html><title>Sign in</title>",
        whole[: len(whole) // 2],
        packed({}),
    ):
        monkeypatch.setattr(f"{__name__}.CONTENT", content)
        with pytest.raises(DataError) as caught:
            downloads.fetch(archive, tmp_path, record, None)
        for part in (archive.url, f"{len(content):,} bytes", str(content[:15])[:-1]):
            assert part in str(caught.value)
        assert not record.exists()
    monkeypatch.setattr(f"{__name__}.CONTENT", whole)
    assert downloads.fetch(archive, tmp_path, record, None)


def test_local_archives_are_linked_and_checked(tmp_path: Path) -> None:
    local, folder, record = tmp_path / "mine", tmp_path / "downloads", tmp_path / "checksums.txt"
    local.mkdir()
    folder.mkdir()
    (local / "file.tgz").write_bytes(CONTENT)
    url = "https://nowhere.invalid/file.tgz"
    with pytest.raises(DataError, match=r"file\.tgz.*must be 00"):
        downloads.fetch(Archive(url, "sha256:00"), folder, record, local)
    assert downloads.fetch(Archive(url, f"sha256:{sha256(CONTENT)}"), folder, record, local)
    assert (folder / "file.tgz").readlink() == (local / "file.tgz").resolve()
    assert not downloads.fetch(
        Archive("https://nowhere.invalid/other.tgz", RECORDED), folder, record, local
    )


def add(
    tar: tarfile.TarFile, name: str, content: bytes, kind: bytes = tarfile.REGTYPE, link: str = ""
) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = len(content), kind, link
    tar.addfile(member, io.BytesIO(content))


def packed(members: dict[str, bytes]) -> bytes:
    """A tar archive, the same bytes at any time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in members.items():
            add(tar, name, content)
    return gzip.compress(buffer.getvalue(), mtime=0)


def read(archive: Path, *names: str) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}

    def reader(name: str, file: IO[bytes]) -> None:
        contents[name] = file.read()

    downloads.read_members(archive, dict.fromkeys(names, reader))
    return contents


def test_members_are_read_and_unpacked(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add(tar, "./text/a.en", b"one\n")
        add(tar, "text/b.en.gz", gzip.compress(b"two\n"))
    assert read(tmp_path / "a.tar", "text/a.en", "text/b.en.gz") == {
        "text/a.en": b"one\n",
        "text/b.en.gz": b"two\n",
    }


def test_only_files_of_whole_archives_are_read(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        add(tar, "b.en", CONTENT * 100)
        add(tar, "a.en", b"", kind=tarfile.SYMTYPE, link="../secret")
    with pytest.raises(DataError, match=r"lacks a\.en"):
        read(tmp_path / "a.tgz", "a.en")
    whole = (tmp_path / "a.tgz").read_bytes()
    (tmp_path / "a.tgz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a\.tgz"):
        read(tmp_path / "a.tgz", "b.en")
