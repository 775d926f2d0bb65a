from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from nmt_cli import registry
from nmt_cli.annexes.parsing.task import ParsingConfig, ParsingTask
from nmt_cli.decoding.options import TranslateOptions
from nmt_cli.errors import UsageError
from nmt_cli.registry import option
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask

PAPER = TranslationTask(TranslationConfig(source_lang="en", target_lang="de"))


def test_choices_of_the_user_replace_the_defaults_of_the_task() -> None:
    options = TranslateOptions().replaced(
        {"alpha": 1.0, "nbest": 20, "batch_tokens": 7, "beam": None}
    )
    search = options.settings(ParsingTask(ParsingConfig()))
    assert (search.beam, search.alpha, search.nbest, options.batch_tokens) == (21, 1.0, 20, 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
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
        ("max_length", 0),
        ("no_repeat_ngram", 0),
        ("seed", 3),
        ("top_k", 5),
        ("top_p", 0.5),
        ("temperature", 0.7),
    ],
)
def test_a_wrong_choice_is_named(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name.replace("_", "[-_]")):
        TranslateOptions().replaced({name: value}).settings(PAPER)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"sample": True, "top_p": 1.5}, "--top-p"),
        ({"sample": True, "top_k": 0}, "--top-k"),
        ({"sample": True, "temperature": 0.0}, "--temperature"),
        ({"sample": True, "seed": -1}, "--seed"),
        ({"sample": True, "beam": 4}, "--sample .* --beam"),
        ({"min_length": 5, "max_length": 4}, "--min-length 5 .* --max-length 4"),
    ],
    ids=str,
)
def test_choices_that_do_not_fit_are_named(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TranslateOptions().replaced(choices).settings(PAPER)


@dataclass(frozen=True)
class LoudConfig:
    loud: bool = option(False, "Write capitals.")


def test_extras_are_found_when_one_of_their_options_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = dict(registry._components["around"])
    monkeypatch.setitem(registry._components, "around", around)

    def discover() -> None:
        registry.register("around", "loud", LoudConfig)(lambda config: config)

    monkeypatch.setattr("nmt_cli.decoding.options.discover", discover)
    with pytest.raises(UsageError, match="there is no option 'louder'"):
        TranslateOptions(louder=True)
    del around["loud"]
    options = TranslateOptions(loud=True, beam=2)
    assert options.extras == {"loud": LoudConfig(True)}
    assert options.replaced({"loud": None, "alpha": 1.0}) == TranslateOptions(
        loud=True, beam=2, alpha=1.0
    )
    # What is at its defaults has no part.
    assert options.replaced({"loud": False}) == TranslateOptions(beam=2)


def test_samples_need_no_beam() -> None:
    options = (
        TranslateOptions()
        .replaced({"beam": 2})
        .replaced({"sample": True, "nbest": 100, "top_k": 5})
    )
    assert options.settings(ParsingTask(ParsingConfig())).nbest == 100
