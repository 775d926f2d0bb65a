"""Requests: the ids of a line, and the limit of the output's length."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli.decoding.encoding import CHARACTERS_PER_TOKEN, encoded, is_unknown, request_of
from nmt_cli.decoding.options import SearchOptions, TranslateOptions

TASK: Any = SimpleNamespace(
    encode_source=lambda text: [4] * len(text),
    max_length=lambda tokens: 2 * tokens,
    target_vocabulary_size=9,
    never_generated=0,
)
OPTIONS = TranslateOptions()


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        (OPTIONS, 6),
        (replace(OPTIONS, max_length_offset=10), 13),
        (replace(OPTIONS, max_length_offset=10, max_length=4), 4),
        (replace(OPTIONS, search=SearchOptions(min_length=8)), 8),
    ],
)
def test_the_limit_of_a_line(options: TranslateOptions, limit: int) -> None:
    request = request_of(TASK, options, 1, "abc", "")
    assert request.ids == [4, 4, 4]
    assert request.limit == limit


def test_a_line_that_is_cut_by_characters_is_truncated() -> None:
    """Although its beginning has fewer tokens than the limit."""
    for characters in (2 * CHARACTERS_PER_TOKEN, 2 * CHARACTERS_PER_TOKEN + 1):
        ids, truncated = encoded("a" * characters, lambda text: [4], limit=2)[1:]
        assert ids == [4]
        assert truncated is (characters > 2 * CHARACTERS_PER_TOKEN)


@pytest.mark.parametrize(
    ("tokens", "unknown"),
    [
        (["▁", "<unk>"], True),
        (["<a>", "<unk>"], True),
        (["▁a", "<unk>"], False),
        (["▁", "▁a"], False),
        ([], False),
    ],
)
def test_lines_without_a_known_word(tokens: list[str], unknown: bool) -> None:
    vocabulary = ["<pad>", "<unk>", "▁", "▁a", "<a>"]
    task = replace_in(
        TASK,
        source_tokens=lambda ids: [vocabulary[i] for i in ids],
        text_of=lambda token: token.replace("<a>", ""),
    )
    assert is_unknown(task, [vocabulary.index(token) for token in tokens]) is unknown


def replace_in(task: Any, **methods: Any) -> Any:
    return SimpleNamespace(**{**vars(task), **methods})
