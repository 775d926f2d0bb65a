"""Lines of text: split at the line feed alone, decoded as UTF-8, strictly or leniently.

`str.splitlines` and files in text mode also split at U+0085, U+2028 and others, which occur inside
real sentences; the two sides of a corpus would lose their alignment. So lines are split as bytes.
"""

from __future__ import annotations

import codecs
import difflib
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt_cli.errors import DataError, NmtError, UsageError
from nmt_cli.files import durable
from nmt_cli.files.opening import COMPRESSED, Input, explained, open_input

STANDARD_INPUT = "-"  # in the place of a file's name
LONGEST_LINE = 1 << 26  # bytes; a longer line is an error: the file is not text
LONGEST_CUT_LINE = 1 << 20  # bytes; in lenient mode, the rest of a longer line is left out
LARGEST_JSON = 1 << 26  # bytes
LARGEST_WEIGHT = 1000  # how often at most an epoch has the sentences of a part of the training text

_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_REPLACEMENT = "\ufffd"
_CONVERT = "Correct the line, or convert the file, for example: iconv -f ISO-8859-1 -t UTF-8"


def check_read_once(names: Sequence[str]) -> None:
    """Raise UsageError if more than one of the files is standard input."""
    if names.count(STANDARD_INPUT) > 1:
        raise UsageError(
            f"standard input, {STANDARD_INPUT!r}, can be read only once: name a file for the others"
        )


def read_lines(
    path: Path | None, consumed: Callable[[int], None] | None = None, *, keep_mark: bool = False
) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, plain or compressed; of standard input where `path` is None.

    A byte-order mark at the start, unless `keep_mark`, and a carriage return at the end of a line
    are removed.

    Raises:
        DataError: the file cannot be read, is not UTF-8, is damaged compressed data, or has a line
            of more than `LONGEST_LINE` bytes. The message names the file and the line.
    """
    with open_input(path, consumed) as stream:
        for line in decoded_lines(stream, keep_mark=keep_mark):
            if line is not None:
                yield line


def read_windows(
    stream: Input, lines: int, warn: Callable[[str], None], characters: int = 1 << 22
) -> Iterator[list[str]]:
    """Yield groups of at most `lines` lines; shorter where they reach `characters` or where the
    input pauses.

    So a file comes in groups large enough to sort, and a line that is typed comes at once. Lines
    are read leniently.
    """
    window: list[str] = []
    held = 0
    for line in decoded_lines(stream, warn):
        if line is not None:
            window.append(line)
            held += len(line)
        if window and (line is None or len(window) == lines or held >= characters):
            yield window
            window, held = [], 0
    if window:
        yield window


def decoded_lines(
    stream: Input, warn: Callable[[str], None] | None = None, *, keep_mark: bool = False
) -> Iterator[str | None]:
    """Yield the lines of `stream`, and None where the input pauses.

    Strict without `warn`: invalid UTF-8 and lines of more than `LONGEST_LINE` bytes raise. Lenient
    with it: each invalid byte becomes U+FFFD, the rest of a line after `LONGEST_CUT_LINE` bytes is
    left out, and `warn` is called with a message. UTF-16 raises in both modes, as does a line
    without an end.
    """
    number = left_out = 0
    rest = b""
    limit = LONGEST_LINE if warn is None else LONGEST_CUT_LINE
    ended = False
    while not ended:
        if not stream.ready():
            yield None
        block = stream.read()
        ended = not block
        *whole, rest = (rest + block).split(b"\n")
        for line in [*whole, rest] if ended and rest else whole:
            number += 1
            if number == 1:
                line = without_mark(line, stream.name, keep_mark)
            yield decoded_line(line, f"{stream.name}:{number}", limit, warn)
        if whole:
            left_out = 0
        if len(rest) > limit:
            left_out += len(rest) - limit
            if warn is None or left_out > LONGEST_LINE:
                raise too_long(f"{stream.name}:{number + 1}")
            rest = rest[: limit + 1]


def without_mark(line: bytes, name: str, keep_mark: bool = False) -> bytes:
    """Return the first line of a file without its byte-order mark; raise DataError for UTF-16."""
    if line.startswith(_UTF16_MARKS):
        raise DataError(f"{name}: this text is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
    return line if keep_mark else line.removeprefix(codecs.BOM_UTF8)


def decoded_line(
    line: bytes, place: str, limit: int = LONGEST_LINE, warn: Callable[[str], None] | None = None
) -> str:
    """Return a line without the carriage return at its end; strict or lenient as `decoded_lines`."""
    line = line.removesuffix(b"\r")
    if len(line) > limit:
        if warn is None:
            raise too_long(place)
        warn(f"{place}: longer than {limit} bytes; the rest is ignored")
        # The incremental decoder leaves out a last character that was cut in two.
        return codecs.getincrementaldecoder("utf-8")("replace").decode(line[:limit])
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"{place}: not valid UTF-8: byte 0x{line[error.start]:02x} at position {error.start + 1}"
        if warn is None:
            raise DataError(f"{problem}. {_CONVERT}") from error
        warn(f"{problem}; each invalid byte is read as {_REPLACEMENT} (U+FFFD). {_CONVERT}")
        return line.decode("utf-8", "replace")


def too_long(place: str) -> DataError:
    """Return the error of a line of more than `LONGEST_LINE` bytes."""
    return DataError(f"{place}: a line of more than {LONGEST_LINE >> 20} MiB; is this a text file?")


def count_lines(path: Path) -> int:
    """Return the number of lines of a file, plain or compressed, as `decoded_lines` counts them."""
    count, last = 0, b"\n"
    with open_input(path) as stream:
        while block := stream.read():
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def existing_file(name: str) -> Path:
    """Return the path of a file, or else of the compressed file; raise DataError if there is none."""
    if found := plain_or_compressed(Path(name)):
        return found
    raise DataError(f"{name}: no such file, nor a compressed one, as {name}.gz")


def check_prefix(prefix: str, endings: Sequence[str]) -> None:
    """Raise DataError if `prefix` is a file, and not the beginning of the names of files with these
    endings.
    """
    if Path(prefix).is_file() and not all(
        plain_or_compressed(Path(f"{prefix}.{ending}")) for ending in endings
    ):
        raise DataError(
            f"{prefix}: expected a table whose name ends in .tsv, or the beginning of the names of "
            "two files. Save CSV "
            "or a spreadsheet as tab-separated text. Name two files with --train-source and "
            "--train-target"
        )


def find_file(prefix: str, ending: str) -> Path:
    """Return the path `PREFIX.ENDING`, or else the path of the compressed file; raise DataError if
    there is none.
    """
    path, given = Path(f"{prefix}.{ending}"), Path(prefix)
    if found := plain_or_compressed(path):
        return found
    directory = given if given.is_dir() else path.parent
    names = sorted(os.listdir(directory)) if directory.is_dir() else []
    prefixes = {name.partition(f".{ending}")[0] for name in names if f".{ending}" in name} - {
        given.name
    }
    if given.is_dir():
        example = directory / min(prefixes, default="train")
        hint = f"{prefix} is a directory; add the beginning of its files' names, as in {example}"
    elif close := difflib.get_close_matches(given.name, prefixes, n=1, cutoff=0.5):
        # Else a number at the end of the name would be the weight.
        weight = "*1" if "*" in close[0] else ""
        hint = f"Did you mean the prefix {directory / close[0]}{weight}?"
    else:
        beside = [name for name in names if name.startswith(given.name)]
        hint = (
            f"Found: {', '.join(beside[:8])}." if beside else f"No file name starts with {prefix}."
        )
    raise DataError(f"{path}: no such file, nor a compressed one, as {path}.gz. {hint}")


def plain_or_compressed(path: Path) -> Path | None:
    """Return `path`, or else the file with one of `COMPRESSED` after its name; None if there is
    neither.
    """
    for ending in ("", *COMPRESSED):
        candidate = Path(f"{path}{ending}")
        if candidate.exists():
            check_regular(candidate)
            return candidate
    return None


def without_compression(name: str) -> str:
    """Return a file's name without the ending that says that it is compressed."""
    return name.removesuffix(next(filter(name.endswith, COMPRESSED), ""))


def weighted(text: str, where: str = "") -> tuple[str, float]:
    """Return the path and the weight of `PATH` or `PATH*WEIGHT`; raise a UsageError for a weight
    out of range.
    """
    match = re.fullmatch(r"(.+)\*([-+.\d]+)", text)
    if match is None:
        return text, 1
    weight = float(match[2]) if re.fullmatch(r"\d*\.?\d+", match[2], re.ASCII) else 0.0
    if not 0 < weight <= LARGEST_WEIGHT:
        raise UsageError(
            f"{where}{text}: the weight must be above 0 and at most {LARGEST_WEIGHT}, not "
            f"{match[2]}"
        )
    return match[1], int(weight) if weight.is_integer() else weight


def untagged(place: str) -> tuple[str, str]:
    """Return what comes before `@` and the tags after it, as in `corpus@<bt>`, which begin with
    `<`.
    """
    where, _, tag = place.partition("@<")
    return where, f"<{tag}" if tag else ""


def check_regular(path: Path, largest: int = sys.maxsize) -> None:
    """Raise DataError if `path` is missing, a directory, a pipe, a device, or has more than
    `largest` bytes.
    """
    with explained(path):
        status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise DataError(
            f"{path}: this is {durable.kind_of(status.st_mode)}; expected a regular file"
        )
    if status.st_size > largest:
        raise DataError(
            f"{path}: {status.st_size:,} bytes; expected at most {largest:,}: is this the right "
            "file?"
        )


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a regular file's bytes, in hexadecimal; raise DataError if it cannot be
    read.
    """
    check_regular(path)
    with explained(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_object(path: Path, error: type[NmtError], advice: str) -> dict[str, Any]:
    """Return the JSON object in a file; where it has none, raise `error` with the file, the reason
    and `advice`.
    """
    try:
        check_regular(path, LARGEST_JSON)
        with explained(path):
            text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        # Raises ValueError for half of a surrogate pair.
        json.dumps(content, ensure_ascii=False).encode()
    except DataError as problem:
        raise error(f"{problem}. {advice}") from problem
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: damaged: not a JSON file: {problem}. {advice}") from problem
    if not isinstance(content, dict):
        raise error(
            f"{path}: damaged: expected a JSON object, found {type(content).__name__}. {advice}"
        )
    return content


def write_object(path: Path, content: Mapping[str, Any], sort_keys: bool = False) -> None:
    """Write a JSON object, in a directory that gets its name later."""
    text = json_text(content, indent=2, sort_keys=sort_keys, ensure_ascii=False)
    durable.write_bytes(path, f"{text}\n".encode())


def json_text(content: Any, **layout: Any) -> str:
    """Return JSON with null for a number that is not finite: Python's NaN and Infinity are not
    JSON.
    """
    strict = json.loads(json.dumps(content), parse_constant=lambda name: None)
    return json.dumps(strict, **layout)
