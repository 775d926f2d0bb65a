from __future__ import annotations

import math
from typing import Any

import pytest

from nmt_cli.decoding.loading import task_options
from nmt_cli.decoding.options import TranslateOptions, with_options
from nmt_cli.errors import UsageError
from nmt_cli.parsing.task import ParsingConfig, ParsingTask


def test_choices_of_the_user_replace_the_defaults_of_the_task() -> None:
    options = task_options(ParsingTask(ParsingConfig()), {"alpha": 1.0, "nbest": 20, "batch_tokens": 7})
    assert (options.search.beam, options.search.alpha, options.search.nbest, options.batch_tokens) == (21, 1.0, 20, 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bean", 4),
        ("search", 1),
        ("beam", 0),
        ("nbest", 0),
        ("nbest", 5),
        ("alpha", -0.1),
        ("alpha", math.nan),
        ("min_length", -1),
        ("batch_tokens", 0),
        ("read_ahead", 0),
        ("max_source_length", 0),
        ("max_length_offset", -1),
    ],
)
def test_a_wrong_choice_is_named(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name.replace("_", "[-_]")):
        with_options(TranslateOptions(), {name: value})
