"""Bytes of files and streams: gzip by content, blocks as they come, and late replacement."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd

from nmt_cli.errors import DataError
from nmt_cli.files.opening import COMPRESSED, Input, open_input, open_output


def content(path: Path) -> bytes:
    with open_input(path) as stream:
        return b"".join(iter(stream.read, b""))


def zstandard(content: bytes) -> bytes:
    """With a checksum, as the program zstd writes it."""
    return zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: 1})


FORMS = {"gzip": gzip.compress, "xz": lzma.compress, "bzip2": bz2.compress, "Zstandard": zstandard}


@pytest.mark.parametrize("name", ["plain", "named.gz"])
@pytest.mark.parametrize("form", [None, *FORMS])
def test_compression_is_recognised_by_content(tmp_path: Path, name: str, form: str | None) -> None:
    text = b"some words\n" * 100_000
    path = tmp_path / name
    path.write_bytes(b"".join(map(FORMS[form], (text[:5000], text[5000:]))) if form else text)
    assert content(path) == text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "damage", [lambda c: c[: len(c) // 2], lambda c: c[:500] + b"x" * 50 + c[550:]]
)
def test_damaged_compressed_data_is_an_error(
    tmp_path: Path, form: str, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "bad"
    path.write_bytes(damage(FORMS[form](os.urandom(1000))))
    with pytest.raises(DataError, match=rf"bad: .*{form} data"):
        content(path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("second", [b"garbage", b"\0\0\0\0x", None])
def test_a_damaged_second_stream_is_an_error(
    tmp_path: Path, form: str, second: bytes | None
) -> None:
    """Programs that compress in parallel write several streams."""
    path = tmp_path / "bad"
    good = FORMS[form](b"some words\n" * 1000)
    path.write_bytes(good + (second or b"\xff" + good[1:]))
    with pytest.raises(DataError, match=rf"bad: .*{form} data"):
        content(path)


@pytest.mark.parametrize("form", ["gzip", "xz"])
def test_streams_may_be_padded(tmp_path: Path, form: str) -> None:
    (tmp_path / "a").write_bytes((FORMS[form](b"some words\n") + bytes(8)) * 2)
    assert content(tmp_path / "a") == b"some words\n" * 2


def test_frames_of_zstandard_may_be_skipped(tmp_path: Path) -> None:
    """pzstd writes one before each frame."""
    skipped = b"\x50\x2a\x4d\x18\x04\0\0\0\0\0\0\0"
    (tmp_path / "a").write_bytes((skipped + zstd.compress(b"some words\n")) * 2)
    assert content(tmp_path / "a") == b"some words\n" * 2


def test_what_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(DataError, match=str(path)):
            content(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a user who is not root")
def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0)
    with pytest.raises(DataError, match="Permission denied"):
        content(tmp_path / "file")


@pytest.mark.parametrize("zipped", [True, False])
def test_all_bytes_of_the_file_are_reported(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "file"
    text = os.urandom(2_000_000)
    path.write_bytes(gzip.compress(text) if zipped else text)
    reports: list[int] = []
    with open_input(path, reports.append) as stream:
        while stream.read():
            pass
    assert sum(reports) == path.stat().st_size
    assert len(reports) > 5


def test_a_pipe_is_read_as_it_comes() -> None:
    reading, writing = os.pipe()
    with io.FileIO(reading) as raw:
        stream = Input(raw, "pipe")
        for block in (b"a", b"bc\n"):
            assert not stream.ready()
            os.write(writing, block)
            assert stream.ready()
            assert stream.read() == block
        os.close(writing)
        assert stream.read() == b""


@pytest.mark.parametrize("name", ["out", "out.gz", "out.xz", "out.bz2", "out.zst"])
def test_output_is_written_as_its_name_says(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"former content, longer than the new one")
    with open_output(path) as write:
        assert path.read_bytes().startswith(b"former")
        write(b"new\n")
        write(b"lines\n")
    written = path.read_bytes()
    unpacked = dict(
        zip(
            COMPRESSED,
            [gzip.decompress, lzma.decompress, bz2.decompress, zstd.decompress],
            strict=True,
        )
    )
    assert unpacked.get(path.suffix, bytes)(written) == b"new\nlines\n"
    if path.suffix == ".zst":
        assert written[4] & 4  # RFC 8878, section 3.1.1.1.1: the flag of a checksum
    with open_output(path):
        pass
    assert content(path) == b""


def fail_after(path: Path, *blocks: bytes) -> None:
    with open_output(path) as write:
        for block in blocks:
            write(block)
        raise ZeroDivisionError


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path, link = tmp_path / "out.gz", tmp_path / "link.gz"
    link.symlink_to(path)
    with pytest.raises(ZeroDivisionError):
        fail_after(path, b"new\n")
    assert [*tmp_path.iterdir()] == [link]
    path.write_bytes(b"former")
    with pytest.raises(ZeroDivisionError):
        fail_after(path, b"new\n")
    assert path.read_bytes() == b"former"
    with open_output(link) as write:
        write(b"new\n")
        assert path.read_bytes() == b"former"
    assert content(path) == b"new\n"
    assert link.is_symlink()
    assert {*tmp_path.iterdir()} == {path, link}


def test_a_pipe_is_written_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with open_output(tmp_path / "pipe") as write:
        write(b"a\n")
        assert os.read(reading, 9) == b"a\n"
    os.close(reading)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_pipe_without_a_name_is_written() -> None:
    reading, writing = os.pipe()
    with open_output(Path(f"/dev/fd/{writing}")) as write:  # as a shell names >(command)
        write(b"a\n")
    assert os.read(reading, 9) == b"a\n"
    os.close(reading)
    os.close(writing)


def test_a_file_keeps_its_mode_and_may_have_a_long_name(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250)
    path.touch(mode=0o600)
    with open_output(path) as write:
        write(b"a")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"a", 0o600)


def test_a_full_disk_names_the_output() -> None:
    with pytest.raises(OSError, match="No space") as error, open_output(Path("/dev/full")) as write:
        write(b"x")
    assert error.value.filename == "/dev/full"


@pytest.mark.parametrize("flags", [os.O_APPEND, os.O_TRUNC])
@pytest.mark.parametrize("linked", [True, False])
def test_a_descriptor_is_written_where_it_stands(tmp_path: Path, flags: int, linked: bool) -> None:
    """As with `nmt translate -o /dev/stdout >> all`, or between commands in `{ ... } > all`."""
    (tmp_path / "all").write_text("earlier\n")
    descriptor = os.open(tmp_path / "all", os.O_WRONLY | flags)
    try:
        os.write(descriptor, b"header\n")
        place = Path(f"/dev/fd/{descriptor}")
        if linked:
            (tmp_path / "link").symlink_to(place)
            place = tmp_path / "link"
        with open_output(place) as write:
            write(b"ours\n")
        os.write(descriptor, b"footer\n")
    finally:
        os.close(descriptor)
    earlier = "earlier\n" if flags == os.O_APPEND else ""
    assert (tmp_path / "all").read_text() == f"{earlier}header\nours\nfooter\n"


def test_a_descriptor_of_another_process_is_appended_to(tmp_path: Path) -> None:
    """As /proc/1/fd/1 in a container."""
    (tmp_path / "log").write_text("earlier\n")
    with (
        (tmp_path / "log").open("a") as log,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log) as other,
        open_output(Path(f"/proc/{other.pid}/fd/1")) as write,
    ):
        write(b"ours\n")
        other.communicate()
    assert (tmp_path / "log").read_text() == "earlier\nours\n"


def test_a_descriptor_that_is_not_open_is_named() -> None:
    with pytest.raises(OSError, match="No such file") as error, open_output(Path("/dev/fd/987")):
        pytest.fail("must not be entered")
    assert error.value.filename == "/dev/fd/987"
