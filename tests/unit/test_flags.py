"""Flags made from dataclasses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from nmt_cli import registry
from nmt_cli.config import Section, sections
from nmt_cli.errors import UsageError
from nmt_cli.flags import (
    Command,
    CommandWithSections,
    FromFile,
    components_in,
    epilog,
    function_of,
    values_of,
)
from nmt_cli.registry import REQUIRED, argument, extras, group, option


@dataclass(frozen=True)
class PanOptions:
    lid: bool | None = option(None, "Close it, or not; by default as the dish needs it.")


@dataclass(frozen=True)
class OvenOptions:
    pan: PanOptions = group("pan", PanOptions)
    degrees: int = option(180, "The temperature.", maximum=300)


@dataclass(frozen=True, kw_only=True)
class CookOptions(FromFile):
    """Cook."""

    guests: tuple[str, ...] = argument("GUEST...", "The guests.")
    table: Path = option(REQUIRED, "The table.")
    knives: tuple[Path, ...] = option(
        (), "A knife; repeat for several.", metavar="KNIFE", names=("--knife", "-k")
    )
    hours: float | None = option(None, "Time to cook.", minimum=0.5)
    quiet: bool = option(False, "Say nothing.")
    heat: str = option("low", "The heat.", choices=("low", "high"))
    hidden: int = 3  # not a flag
    oven: OvenOptions = group("oven", OvenOptions)


@dataclass(frozen=True)
class SoupConfig:
    salt_grams: float = option(1.5, "How much salt [grams].", minimum=0.0)
    servings: int = option(4, "Number of eaters.")
    spice: int | None = option(None, "Which spice.")
    pot: str = option("round", "The pot's form.", choices=("round", "square"))
    simmer: str | int = option("10", "Minutes, or a word.")
    stir: bool = option(False, "Stir.")


@dataclass(frozen=True)
class StewConfig:
    salt_grams: float = option(2.5, "How much salt [grams].", minimum=0.0)
    beef: int = option(1, "Pieces.")
    spice: int = option(2, "How much spice.")
    quiet: bool = option(True, "The name of a flag of the command.")


@pytest.fixture
def taken() -> list[tuple[Any, dict[str, Any]]]:
    return []


@dataclass(frozen=True)
class OvenConfig:
    simmer: int = option(9, "Degrees.")


@pytest.fixture
def cook(taken: list[Any], monkeypatch: pytest.MonkeyPatch) -> Command:
    """A command with a kind of component: a dish, soup or stew, and another: an oven."""
    monkeypatch.setattr(registry, "_components", {"dish": {}, "oven": {}})
    for kind, name, config in (
        ("dish", "soup", SoupConfig),
        ("dish", "stew", StewConfig),
        ("oven", "gas", OvenConfig),
    ):
        registry.register(kind, name, config)(lambda config: config)

    def more_flags(words: Sequence[str]) -> dict[str, Section]:
        return sections(
            {"": components_in(words, ["dish", "oven"])}, {"dish": "soup", "oven": "gas"}
        )

    return Command(
        CookOptions,
        lambda options, flags: taken.append((options, flags)),
        more_flags,
        ["cook anne", "cook bob --stir"],
    )


@pytest.fixture
def app(cook: Command) -> typer.Typer:
    application = typer.Typer(rich_markup_mode=None)
    application.command(cls=CommandWithSections, epilog=epilog(cook))(function_of(cook, []))
    return application


def call(app: typer.Typer, *arguments: str) -> tuple[int, str]:
    done = CliRunner(env={"COLUMNS": "120", "TERM": "dumb"}).invoke(app, list(arguments))
    if isinstance(done.exception, UsageError):
        return done.exception.exit_code, str(done.exception)
    return done.exit_code, done.output


@dataclass(frozen=True)
class SpiceConfig:
    pepper: int = option(0, "Grains of pepper.")


@dataclass(frozen=True)
class Meal:
    spices: OvenOptions = group("oven", OvenOptions)
    extras: dict[str, Any] = extras("around")
    plates: int = option(4, "Number of plates.")


@dataclass(frozen=True, kw_only=True)
class ServeOptions(FromFile):
    """Serve."""

    imports: tuple[str, ...] = option((), "A module.", names=("--import",))
    meal: Meal = group("meal", Meal, without=("plates", "lid"))


def test_registered_extras_have_flags_and_left_out_fields_have_none(
    taken: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry, "_components", {"around": {}})
    modules = list[str]()

    def discover(imports: Sequence[str]) -> None:
        modules.extend(imports)
        registry.register("around", "black_pepper", SpiceConfig)(lambda config: config)

    monkeypatch.setattr(registry, "discover", discover)
    file = tmp_path / "meal.toml"
    file.write_text('import = ["spices"]\npepper = 3\n')
    command = Command(ServeOptions, lambda options: taken.append(options))
    app = typer.Typer(rich_markup_mode=None)
    words = ["--config", str(file), "--degrees", "90"]
    app.command(cls=CommandWithSections)(function_of(command, words))
    assert call(app, *words)[0] == 0
    (options,) = taken
    assert modules == ["spices"]
    assert options.meal == Meal(OvenOptions(degrees=90), {"black_pepper": SpiceConfig(3)})
    output = call(app, "--help")[1]
    assert re.search(r"Black pepper:\n +--pepper N", output)
    assert "--plates" not in output
    assert "--lid" not in output
    assert call(app, "--plates", "3")[0] == 2
    file.write_text("plates = 3\n")
    with pytest.raises(UsageError, match="there is no setting"):
        function_of(command, words)


def test_values_arrive_with_their_types(app: typer.Typer, taken: list[Any]) -> None:
    assert call(app, "anne", "--table", "round")[0] == 0
    arguments = (
        "anne bob --table oak -k a --knife b --hours 2 --quiet --heat high --salt-grams 2 "
        "--servings 3 --spice 7 "
        "--pot square --simmer 20 --no-stir --dish.beef 4 --dish.quiet --dish stew"
    )
    assert call(app, *arguments.split())[0] == 0
    assert taken[0] == (CookOptions(guests=("anne",), table=Path("round")), {})
    options, flags = taken[1]
    assert options == CookOptions(
        guests=("anne", "bob"),
        table=Path("oak"),
        knives=(Path("a"), Path("b")),
        hours=2.0,
        quiet=True,
        heat="high",
    )
    assert isinstance(options.hours, float)
    assert flags == {
        "salt_grams": 2.0,
        "servings": 3,
        "spice": 7,
        "pot": "square",
        "simmer": "20",
        "stir": False,
        "dish.beef": 4,
        "dish.quiet": True,
        "dish": "stew",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["--servings", "2.5"],
        ["--salt-grams", "much"],
        ["--hours", "0.1"],
        ["--heat", "none"],
        ["--hidden", "4"],
        ["--quiet", "true"],
    ],
)
def test_values_that_do_not_fit_are_rejected(
    app: typer.Typer, taken: list[Any], arguments: list[str]
) -> None:
    code, output = call(app, "anne", "--table", "x", *arguments)
    assert (code, taken) == (2, [])
    assert arguments[0] in output
    assert call(app, "anne")[0] == 2  # without a table


def test_flags_of_groups_make_nested_dataclasses(app: typer.Typer, taken: list[Any]) -> None:
    assert call(app, *"anne --table x --degrees 200 --no-lid".split())[0] == 0
    assert taken[0][0].oven == OvenOptions(PanOptions(lid=False), degrees=200)
    code, output = call(app, *"anne --table x --degrees 301".split())
    assert (code, len(taken)) == (2, 1)
    assert "--degrees" in output


def test_help_is_made_from_the_dataclasses(app: typer.Typer) -> None:
    code, output = call(app, "--help")
    assert code == 0
    words = re.sub(r" +", " ", output)
    for expected in (
        "[OPTIONS] GUEST...\n\n Cook.\n\n",
        "\n GUEST... The guests.\n",
        "\n --table FILE The table. [required]\n",
        "\n -k, --knife KNIFE A knife; repeat for several.\n",
        "\n --hours X Time to cook.\n",
        "\n --quiet Say nothing.\n",
        "\n --heat low|high The heat. [default: low]\n",
        "\n --salt-grams X How much salt [grams]. [default: 1.5]\n",
        "\n --servings N Number of eaters. [default: 4]\n",
        "\n --spice N Which spice.\n",
        "\n --dish.simmer N Minutes, or a word. [default: 10]\n",
        "\n --oven.simmer N Degrees. [default: 9]\n",
        "\n --stir / --no-stir Stir.\n",
        f"\n --dish NAME Selected: soup. Others:\n stew {__doc__}\n --oven NAME Selected: gas.\n",
        "\n Examples:\n cook anne\n cook bob --stir\n",
    ):
        assert expected in words
    assert output.count("--salt-grams") == output.count("--quiet") == 1
    titles = re.findall(r"^(\w.*):$", output, re.MULTILINE)
    assert (titles[:4], titles[5:]) == (
        ["Arguments", "Options", "Pan", "Oven"],
        ["Dish soup", "Oven gas"],
    )
    assert titles[4].startswith("Components")


@pytest.mark.parametrize("words", [["--dish", "stew"], ["--dish=soup", "--dish=stew"]])
def test_the_help_is_about_the_selected_component(
    cook: Command, taken: list[Any], words: list[str]
) -> None:
    """Flags of others are hidden, and can be given."""
    application = typer.Typer(rich_markup_mode=None)
    application.command(cls=CommandWithSections)(function_of(cook, words))
    output = call(application, *words, "--help")[1]
    assert re.findall(r"^(\w.*):$", output, re.MULTILINE)[5:] == ["Dish stew", "Oven gas"]
    assert not re.search("servings|eaters|Minutes", output)
    assert "--simmer N" in output
    assert "--dish.quiet" in output  # the command has a --quiet
    assert "How much salt [grams]. [default: 2.5]" in " ".join(output.split())
    assert call(application, "anne", "--table", "x", "--servings", "3")[0] == 0
    assert taken[0][1] == {"servings": 3}


COOKED = """
guest: [anne, bob]
table: oak
knife: k
hours: 2
quiet: true
heat: high
degrees: 200
dish: {name: stew, beef: 4}
spice: 7
"""


def called(cook: Command, *words: str) -> tuple[int, str]:
    """Call the command as `nmt` does, which makes its flags by the words of the command line."""
    application = typer.Typer(rich_markup_mode=None)
    try:
        application.command(cls=CommandWithSections)(function_of(cook, words))
    except UsageError as error:
        return error.exit_code, str(error)
    return call(application, *words)


@pytest.mark.usefixtures("_there")
def test_a_file_gives_flags_and_arguments(cook: Command, taken: list[Any]) -> None:
    Path("dinner.yaml").write_text(COOKED)
    assert called(cook, "--config", "dinner.yaml")[0] == 0
    options, flags = taken[0]
    expected = CookOptions(
        guests=("anne", "bob"),
        table=Path("oak"),
        knives=(Path("k"),),
        hours=2.0,
        quiet=True,
        heat="high",
        oven=OvenOptions(degrees=200),
        config=Path("dinner.yaml"),
    )
    assert (options, flags) == (expected, {})
    assert options.of_components() == {"dish": "stew", "dish.beef": 4, "spice": 7}


def test_the_last_of_two_values_counts_in_both_forms() -> None:
    words = ["--dish=soup", "--dish", "stew", "--oven", "gas", "--oven=wood", "--dish"]
    assert values_of(words, "--dish") == ["soup", "stew"]
    assert components_in(words, ["dish", "oven"]) == {"dish": "stew", "oven": "wood"}


@pytest.mark.usefixtures("_there")
def test_the_command_line_wins_over_the_file(cook: Command, taken: list[Any]) -> None:
    Path("dinner.yaml").write_text(COOKED)
    words = "carl --config=dinner.yaml -k a --heat low --no-quiet --degrees 30 --beef 2".split()
    assert called(cook, *words)[0] == 0
    options, flags = taken[0]
    assert (options.guests, options.knives, options.heat, options.quiet) == (
        ("carl",),
        (Path("a"),),
        "low",
        False,
    )
    assert (options.table, options.oven.degrees, flags) == (Path("oak"), 30, {"beef": 2})


@pytest.mark.usefixtures("_there")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tabel: oak", "dinner.yaml: there is no setting tabel: did you mean table?"),
        ("hidden: 3", "dinner.yaml: there is no setting hidden: unknown"),
        ("config: x", "dinner.yaml: there is no setting config: "),
        (
            "tabel: oak\nhidden: 3",
            "dinner.yaml: there is no setting\n  hidden: unknown\n  tabel: did you mean table?\n",
        ),
        ("hours: no", "dinner.yaml: --hours must be of type float, not 'no'"),
        ("hours: 1e-1", "dinner.yaml: --hours must be at least 0.5"),
        ("degrees: 301", "dinner.yaml: --degrees must be at most 300"),
        ("knife: [1]", "dinner.yaml: --knife must be of type"),
        ("table:", "table is missing: give it on the command line or in the file of --config"),
        ("table: oak\nguest: []", "guest is missing"),
    ],
)
def test_a_file_that_does_not_fit(
    cook: Command, taken: list[Any], content: str, message: str
) -> None:
    given = "" if "table" in content else "table: oak\n"
    Path("dinner.yaml").write_text(f"{given}{content}\n")
    code, output = called(
        cook, *([] if "guest" in content else ["anne"]), "--config", "dinner.yaml"
    )
    assert code == 2
    assert output.startswith(message)
    assert taken == []


@pytest.fixture
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
