from __future__ import annotations

from typing import Any

import pytest

from nmt_cli.decoding.loading import task_options
from nmt_cli.decoding.options import TranslateOptions, with_options
from nmt_cli.errors import UsageError
from nmt_cli.parsing.task import ParsingConfig, ParsingTask
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask


def test_the_papers_search_of_each_task() -> None:
    """Sections 6.1 and 6.3."""
    translation, parsing = (
        task_options(TranslationTask(TranslationConfig()), {}),
        task_options(ParsingTask(ParsingConfig()), {}),
    )
    assert (translation.search.beam, translation.search.alpha) == (4, 0.6)
    assert (parsing.search.beam, parsing.search.alpha) == (21, 0.3)


def test_what_the_user_chose_goes_over_it() -> None:
    options = task_options(ParsingTask(ParsingConfig()), {"alpha": 1.0, "nbest": 20, "batch_tokens": 7})
    assert (options.search.beam, options.search.alpha, options.search.nbest, options.batch_tokens) == (21, 1.0, 20, 7)


@pytest.mark.parametrize("wrong", [{"bean": 4}, {"search": 1}, {"beam": 0}, {"nbest": 5}, {"read_ahead": 0}])
def test_wrong_choices(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        with_options(TranslateOptions(), wrong)
