"""Lines as ids, cut at `max_source_length`, and as requests to an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nmt_cli.data.vocabulary import SPACE
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.errors import UsageError, shown
from nmt_cli.interfaces import UNK
from nmt_cli.task import Task

# A line is cut after this many characters for each token of `max_source_length`, before it is
# encoded: a long line takes no more time than the tokens that are used.
CHARACTERS_PER_TOKEN = 100


class Encoded(NamedTuple):
    """A line and its ids, without EOS."""

    line: str
    ids: list[int]
    truncated: bool  # the ids are the beginning of the line


def encoded(line: str, encode: Callable[[str], list[int]], limit: int) -> Encoded:
    """Return a line and its first `limit` ids.

    Raises:
        UsageError: it is not a text, or several lines.
        DataError: as `encode`.
    """
    line = readable(line)
    text = line.strip()
    most_characters = limit * CHARACTERS_PER_TOKEN
    ids = list[int]()
    if text:
        ids = encode(text[:most_characters])
    truncated = len(ids) > limit or len(text) > most_characters
    return Encoded(line, ids[:limit], truncated)


def is_unknown(task: Task, ids: Sequence[int]) -> bool:
    """Return whether a line has unknown words, and nothing else that is written as text."""
    if UNK not in ids:
        return False
    (unknown,) = task.source_tokens([UNK])
    tokens = task.source_tokens(ids)
    return all(token in (unknown, SPACE) or not task.text_of(token) for token in tokens)


def request_of(
    task: Task, options: TranslateOptions, number: int, line: str, prefix: str
) -> Request:
    """Return the request to translate a line.

    Args:
        number: of the line in the whole input.
        prefix: the text that the outputs must begin with, or "".

    Raises: as `encoded`.
    """
    line, ids, truncated = encoded(line, task.encode_source, options.max_source_length)
    prefix = readable(prefix)
    if not prefix.strip():
        prefix = ""
    if options.max_length_offset is None:
        limit = task.max_length(len(ids))
    else:
        limit = len(ids) + options.max_length_offset
    if options.max_length is not None:
        limit = min(limit, options.max_length)
    limit = max(limit, options.search.min_length)
    return Request(ids, limit, prefix, line, number, truncated)


def readable(text: str) -> str:
    """Return the text with "?" for half a surrogate pair, which UTF-8 cannot have.

    Raises:
        UsageError: it is not a text, or several lines.
    """
    if not isinstance(text, str):
        raise UsageError(f"expected lines of text, not {type(text).__name__}: {shown(text)}")
    if "\n" in text.strip():
        raise UsageError(
            f"expected one line, not several, in {shown(text)}; give a list with each line"
        )
    return text.encode("utf-8", "replace").decode()
