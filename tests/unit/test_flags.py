"""Flags made from dataclasses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from nmt_cli.errors import UsageError
from nmt_cli.flags import Panel, with_fields
from nmt_cli.registry import option


@dataclass(frozen=True)
class SoupConfig:
    salt_grams: float = option(1.5, "how much salt [grams]", minimum=0.0)
    servings: int = option(4, "how many eat")
    spice: int | None = option(None, "which spice, by number")
    pot: str = option("round", "the pot's form", choices=("round", "square"))
    simmer: str | int = option("10", "minutes, or a word")
    stir: bool = option(False, "whether to stir")
    lid: bool = option(True, "whether to cover")


@dataclass(frozen=True)
class StewConfig:
    salt_grams: float = option(2.5, "how much salt [grams]", minimum=0.0)
    beef: int = option(1, "pieces")


@pytest.fixture
def taken() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def app(taken: list[dict[str, Any]]) -> typer.Typer:
    def cook(guest: str = "anne", flags: Annotated[Any, "fields"] = None) -> None:
        """Cooks."""
        taken.append({"guest": guest, "flags": flags})

    application = typer.Typer()
    panels = [Panel("soup", SoupConfig), Panel("stew", StewConfig)]
    application.command()(with_fields(cook, panels, {"dish": ["soup", "stew"]}))
    return application


def call(app: typer.Typer, *arguments: str) -> tuple[int, str]:
    done = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}).invoke(app, list(arguments))
    return done.exit_code, done.output


def test_a_shared_flag_stands_once_with_each_components_default(app: typer.Typer) -> None:
    _, shown = call(app, "--help")
    assert shown.count("--salt-grams") == 1
    assert "soup and stew" in shown
    assert "[default: soup 1.5, stew 2.5]" in shown


def test_a_field_cannot_have_the_name_of_the_commands_own_flag() -> None:
    def serve(servings: int = 1, flags: Annotated[Any, "fields"] = None) -> None:
        """Serves."""

    with pytest.raises(UsageError, match="--servings is a flag of the command itself"):
        with_fields(serve, [Panel("soup", SoupConfig)])


def test_only_what_was_given_arrives_with_its_type(app: typer.Typer, taken: list[dict[str, Any]]) -> None:
    assert call(app)[0] == 0
    arguments = "--salt-grams 2 --servings 3 --spice 7 --pot oval --simmer 20 --stir --no-lid --dish stew --guest bob"
    assert call(app, *arguments.split())[0] == 0
    assert taken == [
        {"guest": "anne", "flags": {}},
        {
            "guest": "bob",
            "flags": {
                "salt_grams": 2.0, "servings": 3, "spice": 7, "pot": "oval", "simmer": "20", "stir": True,
                "lid": False, "dish": "stew",
            },
        },
    ]  # fmt: skip
    assert isinstance(taken[1]["flags"]["salt_grams"], float)


def test_a_switch_may_be_given_as_it_is_by_default(app: typer.Typer, taken: list[dict[str, Any]]) -> None:
    """So that a flag can undo what a preset or a file says."""
    call(app, "--no-stir", "--lid")
    assert taken[0]["flags"] == {"stir": False, "lid": True}


@pytest.mark.parametrize("arguments", [["--servings", "two"], ["--servings", "2.5"], ["--salt-grams", "much"]])
def test_values_of_another_type_are_refused(
    app: typer.Typer, taken: list[dict[str, Any]], arguments: list[str]
) -> None:
    code, output = call(app, *arguments)
    assert code == 2
    assert arguments[0] in output
    assert taken == []


def test_an_unknown_flag_is_told_the_nearest(app: typer.Typer) -> None:
    code, output = call(app, "--serving", "3")
    assert code == 2
    assert "--servings" in output


def test_help_says_what_the_dataclass_says(app: typer.Typer) -> None:
    code, output = call(app, "--help")
    assert code == 0
    words = re.sub(r"\s+", " ", output)
    for expected in (
        "--salt-grams NUMBER how much salt [grams] [default: soup 1.5, stew 2.5]",
        "--servings INTEGER how many eat [default: 4]",
        "--spice INTEGER which spice, by number │",  # no default to show
        "--pot TEXT the pot's form (round | square) [default: round]",
        "whether to stir [default: False]",
        "--dish NAME which dish: soup, stew",
    ):
        assert expected in words
    assert "─ soup ─" in output
    assert "─ stew ─" in output
    assert "--flags" not in output


def test_a_field_that_two_components_share_is_one_flag(app: typer.Typer, taken: list[dict[str, Any]]) -> None:
    assert call(app, "--help")[1].count("--salt-grams") == 1
    call(app, "--salt-grams", "5", "--beef", "2")
    assert taken[0]["flags"] == {"salt_grams": 5.0, "beef": 2}
