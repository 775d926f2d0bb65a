"""Lines of text: split at the line feed alone, decoded as UTF-8, strictly or leniently.

`str.splitlines` and files in text mode also split at U+0085, U+2028 and others. They occur inside
real sentences, and the two sides of a corpus would lose their alignment. So lines are split as
bytes.
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
LONGEST_LINE = 1 << 26  # bytes. A file with a longer line is not text
LONGEST_CUT_LINE = 1 << 20  # bytes. In lenient mode, the rest of a longer line is left out
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
    """Yield the lines of a UTF-8 file, plain or compressed.

    A byte-order mark at the start, unless `keep_mark`, and a carriage return at the end of a line
    are removed.

    Args:
        path: None is standard input.

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
    """Yield groups of lines, which are read leniently.

    A group ends after `lines` lines, after `characters`, or where the input pauses. So a file comes
    in groups large enough to sort, and a line that is typed comes at once.
    """
    window: list[str] = []
    length = 0
    for line in decoded_lines(stream, warn):
        if line is not None:
            window.append(line)
            length += len(line)
        if window and (line is None or len(window) == lines or length >= characters):
            yield window
            window = []
            length = 0
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
    limit = LONGEST_LINE if warn is None else LONGEST_CUT_LINE
    number = 0
    left_out = 0  # bytes of the line that has no end yet
    rest = b""  # the beginning of that line
    ended = False
    while not ended:
        if not stream.ready():
            yield None
        block = stream.read()
        ended = not block
        *lines, rest = (rest + block).split(b"\n")
        if lines:
            left_out = 0
        if ended and rest:
            lines.append(rest)
        for line in lines:
            number += 1
            if number == 1:
                line = without_mark(line, stream.name, keep_mark)
            yield decoded_line(line, f"{stream.name}:{number}", limit, warn)
        if len(rest) > limit:
            left_out += len(rest) - limit
            if warn is None or left_out > LONGEST_LINE:
                raise too_long(f"{stream.name}:{number + 1}")
            rest = rest[: limit + 1]


def without_mark(line: bytes, name: str, keep_mark: bool = False) -> bytes:
    """Return the first line of a file without its mark, or raise DataError for UTF-16."""
    if line.startswith(_UTF16_MARKS):
        raise DataError(f"{name}: this text is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
    if keep_mark:
        return line
    return line.removeprefix(codecs.BOM_UTF8)


def decoded_line(
    line: bytes, place: str, limit: int = LONGEST_LINE, warn: Callable[[str], None] | None = None
) -> str:
    """Return a line without the carriage return at its end, as `decoded_lines` decodes it."""
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
        byte = line[error.start]
        problem = f"{place}: not valid UTF-8: byte 0x{byte:02x} at position {error.start + 1}"
        if warn is None:
            raise DataError(f"{problem}. {_CONVERT}") from error
        warn(f"{problem}; each invalid byte is read as {_REPLACEMENT} (U+FFFD). {_CONVERT}")
        return line.decode("utf-8", "replace")


def too_long(place: str) -> DataError:
    """Return the error of a line of more than `LONGEST_LINE` bytes."""
    return DataError(f"{place}: a line of more than {LONGEST_LINE >> 20} MiB; is this a text file?")


def count_lines(path: Path) -> int:
    """Return the number of lines of a file, plain or compressed, as `decoded_lines` counts them."""
    count = 0
    last = b"\n"
    with open_input(path) as stream:
        for block in iter(stream.read, b""):
            count += block.count(b"\n")
            last = block[-1:]
    if last != b"\n":
        count += 1
    return count


def existing_file(name: str) -> Path:
    """Return the path of a file, plain or compressed, or raise DataError."""
    path = plain_or_compressed(Path(name))
    if path is None:
        raise DataError(f"{name}: no such file, nor a compressed one, as {name}.gz")
    return path


def check_prefix(prefix: str, endings: Sequence[str]) -> None:
    """Raise DataError if `prefix` is a file itself, and there are no files with these endings."""
    if not Path(prefix).is_file():
        return
    if all(plain_or_compressed(Path(f"{prefix}.{ending}")) for ending in endings):
        return
    raise DataError(
        f"{prefix}: expected a table whose name ends in .tsv, or the beginning of the names of two "
        "files. Save CSV or a spreadsheet as tab-separated text. Name two files with "
        "--train-source and --train-target"
    )


def find_file(prefix: str, ending: str) -> Path:
    """Return the path `PREFIX.ENDING`, or the path of the compressed file, or raise DataError."""
    place = Path(f"{prefix}.{ending}")
    path = plain_or_compressed(place)
    if path is None:
        hint = _prefix_meant(Path(prefix), ending)
        raise DataError(f"{place}: no such file, nor a compressed one, as {place}.gz. {hint}")
    return path


def _prefix_meant(prefix: Path, ending: str) -> str:
    """Return a hint at files that have this ending, or begin with this prefix."""
    directory = prefix if prefix.is_dir() else prefix.parent
    names = sorted(os.listdir(directory)) if directory.is_dir() else []
    prefixes = {name.partition(f".{ending}")[0] for name in names if f".{ending}" in name}
    prefixes.discard(prefix.name)
    if prefix.is_dir():
        example = directory / min(prefixes, default="train")
        return f"{prefix} is a directory; add the beginning of its files' names, as in {example}"
    close = difflib.get_close_matches(prefix.name, prefixes, n=1, cutoff=0.5)
    if close:
        # Without a weight, a number at the end of the name would be taken for one.
        weight = "*1" if "*" in close[0] else ""
        return f"Did you mean the prefix {directory / close[0]}{weight}?"
    similar = [name for name in names if name.startswith(prefix.name)]
    if similar:
        return f"Found: {', '.join(similar[:8])}."
    return f"No file name starts with {prefix}."


def plain_or_compressed(path: Path) -> Path | None:
    """Return `path`, or the file with one of `COMPRESSED` after its name, or None."""
    for ending in ("", *COMPRESSED):
        candidate = Path(f"{path}{ending}")
        if candidate.exists():
            check_regular(candidate)
            return candidate
    return None


def without_compression(name: str) -> str:
    """Return a file's name without the ending that says that it is compressed."""
    for ending in COMPRESSED:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def weighted(text: str, where: str = "") -> tuple[str, float]:
    """Return the path and the weight of `PATH` or `PATH*WEIGHT`.

    Raises:
        UsageError: the weight is out of range.
    """
    match = re.fullmatch(r"(.+)\*([-+.\d]+)", text)
    if match is None:
        return text, 1
    path, number = match.groups()
    weight = float(number) if re.fullmatch(r"\d*\.?\d+", number, re.ASCII) else 0.0
    if not 0 < weight <= LARGEST_WEIGHT:
        raise UsageError(
            f"{where}{text}: the weight must be above 0 and at most {LARGEST_WEIGHT}, not {number}"
        )
    if weight.is_integer():
        return path, int(weight)
    return path, weight


def untagged(place: str) -> tuple[str, str]:
    """Return the path and the tags of `PATH@TAGS`, as in `corpus@<bt>`. Tags begin with `<`."""
    path, _, tag = place.partition("@<")
    return path, f"<{tag}" if tag else ""


def check_regular(path: Path, largest: int = sys.maxsize) -> None:
    """Raise DataError unless `path` is a regular file of at most `largest` bytes."""
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
    """Return the SHA-256 of a regular file, in hexadecimal. Raise DataError if there is none."""
    check_regular(path)
    with explained(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_object(path: Path, error: type[NmtError], advice: str) -> dict[str, Any]:
    """Return the JSON object in a file, or raise `error` with a message that ends with `advice`."""
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
    """Return JSON with null for a number that is not finite. Python's NaN is not JSON."""
    strict = json.loads(json.dumps(content), parse_constant=lambda name: None)
    return json.dumps(strict, **layout)
