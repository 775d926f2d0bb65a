"""The documents keep their promises: links, commands and their flags, lengths of lines."""

from __future__ import annotations

import ast
import dataclasses
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from nmt_cli.cli import command_names, load_command
from nmt_cli.commands.prepare import DEFAULT_TASK, TASK, filter_configs
from nmt_cli.config import COMMAND_LINE, resolve, sections
from nmt_cli.errors import UsageError
from nmt_cli.flags import Command, CommandWithSections, function_of
from nmt_cli.training.settings import TrainingConfig

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ROOT / "docs" / "reference" / "commands.md"
PAGES = sorted(
    {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "recipes").rglob("*.md")}
    - {GENERATED}
)
MANUAL = [page for page in PAGES if page.parent in (ROOT / "docs", ROOT / "docs" / "annexes")]
SCRIPTS = sorted((ROOT / "recipes").rglob("*.sh"))
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
CALL = re.compile(rf"(?:^|[\s`/])(?:nmt|-m nmt_cli) ((?:{'|'.join(command_names())})(?:\s.*|$))")
LONGEST_LINE = 120
LONGEST_LISTING = 92  # columns, which the site shows without scrolling
MOST_PAGES = 24
MOST_WORDS = 20_000


def shell_lines(page: Path) -> Iterator[str]:
    """Yield the lines of the page's blocks of shell commands, continued lines joined."""
    language = None
    for line in re.sub(r"\\\n *", "", page.read_text(encoding="utf-8")).split("\n"):
        if fence := re.match(r" *```(\w*)", line):
            language = fence[1] if language is None else None
        elif language in ("", "sh", "bash", "shell", "console"):
            yield line


def words_of(line: str) -> list[str]:
    """Return the words of a shell command up to a pipe, a redirection or a comment.

    Placeholders become 1.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>&;")
    lexer.whitespace_split = True
    words = []
    for word in lexer:
        if set(word) <= set("|<>&;"):
            break
        if not re.fullmatch(r"\W*\.\.\.\W*|…", word):
            words.append("1" if re.fullmatch(r"[A-Z]|.*\$.*", word) else word)
    return words


def calls(page: Path) -> Iterator[list[str]]:
    """Yield the words of every `nmt COMMAND ...` of the page, and of a recipe's training flags."""
    for line in shell_lines(page):
        if call := CALL.search(line):
            yield words_of(re.split("  +", call[1])[0])
        if recipe := re.search(r"recipes/\S+\.sh .*?(?<= )-- (.*)", line):
            yield ["train", "data", "--out", "run", *words_of(recipe[1])]


def problem(words: list[str]) -> str:
    """Return the message that `nmt WORDS` is refused with, nothing if it is accepted.

    Calls that import a module are not tried, as the module is not here; calls may leave out what is
    required.
    """
    name, *rest = words
    if rest and "--import" not in rest:
        try:
            checked(name).main(rest, standalone_mode=False)
        except (UsageError, typer.TyperException) as error:
            return (
                ""
                if str(error).startswith("Missing parameter")
                else f"nmt {' '.join(words)}: {error}"
            )
    return ""


@cache
def checked(name: str) -> Any:
    """Return the command `name` for calls that only check their flags."""

    def run(options: Any, flags: Mapping[str, Any] | None = None) -> None:
        if name == "train":
            resolve(TrainingConfig, flags or {}, preset=options.preset)
        if name == "prepare":
            settings = sections(
                {COMMAND_LINE: flags or {}}, {TASK: DEFAULT_TASK}, **filter_configs()
            )
            _ = [section.instance() for section in settings.values()]

    return click_command(name, dataclasses.replace(load_command(name), run=run))


def click_command(name: str, command: Command) -> Any:
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(name, cls=CommandWithSections)(function_of(command, []))
    return typer.main.get_command(app)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page(page: Path) -> None:
    """Links lead somewhere, commands are accepted, and lines are short, except rows of tables."""
    text = page.read_text(encoding="utf-8")
    targets = [target for target in LINK.findall(text) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []
    assert list(filter(None, map(problem, calls(page)))) == []
    assert [
        line
        for line in text.split("\n")
        if len(line) > LONGEST_LINE and not line.lstrip().startswith("|")
    ] == []


def listings(page: Path) -> Iterator[str]:
    """Yield the lines of the page's fenced blocks, and of the code that it includes."""
    block: list[str] | None = None
    for line in page.read_text(encoding="utf-8").split("\n"):
        if not line.lstrip().startswith("```"):
            if block is not None:
                block.append(line)
        elif block is None:
            block = [line]
        else:
            included = re.match(r"```{literalinclude} (\S+)", block[0])
            yield from included_code(page.parent / included[1], block) if included else block[1:]
            block = None


def included_code(path: Path, directive: list[str]) -> list[str]:
    """Return the lines that a literalinclude prints, of the object that it names."""
    options = dict(re.findall(r"^:(\w+):(.*)$", "\n".join(directive), re.MULTILINE))
    text = path.read_text(encoding="utf-8")
    node: Any = ast.parse(text)
    for name in options["pyobject"].strip().split("."):
        (node,) = [inner for inner in node.body if getattr(inner, "name", None) == name]
    first = min(part.lineno for part in [node, *node.decorator_list])
    code = "\n".join(text.split("\n")[first - 1 : node.end_lineno])
    if "dedent" in options:
        code = textwrap.dedent(code)
    return code.split("\n")


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent != ROOT or page.name == "README.md"],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_the_listings_of_a_page_fit_a_screen(page: Path) -> None:
    assert [line for line in listings(page) if len(line) > LONGEST_LISTING] == []


def test_the_manual_is_short() -> None:
    """The tutorial and the reference do not count. A word has a letter or a digit."""
    words = [word for page in MANUAL for word in page.read_text(encoding="utf-8").split()]
    assert len(MANUAL) <= MOST_PAGES
    assert len([word for word in words if re.search(r"\w", word)]) <= MOST_WORDS


def test_the_examples_of_the_help_are_accepted() -> None:
    examples = [
        (name, example) for name in command_names() for example in load_command(name).examples
    ]
    assert all(example.split()[:2] == ["nmt", name] for name, example in examples)
    assert (
        list(
            filter(
                None,
                (problem(words_of(example.replace("\\\n", ""))[1:]) for _, example in examples),
            )
        )
        == []
    )


def test_flags_in_prose_and_in_recipes_exist() -> None:
    """Of calls that are not whole commands, the names of the flags are checked."""
    unknown = []
    texts = {page: re.findall(r"`nmt [^`]*`", page.read_text(encoding="utf-8")) for page in PAGES}
    texts |= {
        script: re.sub(r"\\\n *", "", script.read_text("utf-8")).split("\n") for script in SCRIPTS
    }
    for path, lines in texts.items():
        for call in filter(None, map(CALL.search, lines)):
            name, *words = re.split(r"[\s`\"=]+", re.split(r" (?:\||>|<|&&|#) ", call[1])[0])
            given = {word for word in words if re.fullmatch(r"--[a-z][a-z0-9-]*", word)}
            unknown += [
                (path.name, call[0], flag)
                for flag in given - flags_of(name)
                if "--import" not in words
            ]
    assert unknown == []


@cache
def flags_of(name: str) -> set[str]:
    parameters = click_command(name, load_command(name)).params
    return {
        "--help",
        *(
            flag
            for parameter in parameters
            for flag in [*parameter.opts, *parameter.secondary_opts]
        ),
    }


def test_the_pages_name_every_command() -> None:
    assert {command for page in PAGES for command, *_ in calls(page)} == set(command_names())


def test_commands_that_fail_are_found() -> None:
    """The tests above can fail."""
    assert problem(["train", "data", "--out", "run", "--validation-bleu"]) == ""
    for wrong in ("--d-modle 4", "--d-model x", "--norm posst", "--preset x"):
        assert problem(["train", "data", "--out", "run", *wrong.split()])
    assert problem(["prepare", "--out", "data", "--train", "x", "--task", "parsign"])
    assert (
        words_of("nmt translate $RUN --beam N < a | nmt score - --ref b")
        == "nmt translate 1 --beam 1".split()
    )


def pinned(name: str) -> dict[str, str]:
    """The versions of a file of requirements, by name in lower case."""
    pinned_versions = re.findall(
        r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE
    )
    return {package.lower().replace("_", "-"): version for package, version in pinned_versions}


def test_the_hashes_are_of_the_versions_that_are_tested() -> None:
    """`make lock` writes them anew."""
    locked, tested = pinned("requirements-lock.txt"), pinned("constraints.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    assert {
        re.split("[<>=]", requirement)[0] for requirement in needed
    } <= locked.keys() & tested.keys()
    assert {name: tested.get(name, version) for name, version in locked.items()} == locked
    of_pytorch = {name for name in locked if name.startswith(("nvidia-", "cuda-"))} | {"triton"}
    assert locked.keys() - tested.keys() <= of_pytorch
    entries = (
        (ROOT / "requirements-lock.txt")
        .read_text(encoding="utf-8")
        .replace("\\\n", "")
        .split("\n")[2:-1]
    )
    assert all(
        re.fullmatch(r"\S+==\S+(\s+--hash=sha256:[0-9a-f]{64}){1,3}", entry) for entry in entries
    )
