"""The layout holds: imports run one way, packages import nothing by themselves, help is light, files stay readable."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import nmt_cli

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "nmt_cli"
MODULES = sorted(set(PACKAGE.rglob("*.py")) - {PACKAGE / "__init__.py"})
"""Every module but the package itself, whose names come from above: see `test_package_hands_its_names_on_lazily`."""

FLOORS = {
    "cli": 6,
    "__main__": 7,
    "flags": 3,
    "api": 5,
    "commands": 5,
    "parsing": 6,
    "training": 4,
    "decoding": 4,
    "models": 3,
    "tasks": 3,
    "checkpoint": 3,
    "data": 2,
    "layers": 2,
    "criteria": 2,
    "optim": 2,
    "metrics": 2,
    "config": 2,
    "files": 1,
    "interfaces": 1,
    "registry": 1,
    "presets": 1,
    "device": 1,
    "lookout": 0,
    "errors": 0,
    "streams": 0,
}
"""The floor of every folder and file in the package's root; a room imports from lower floors and from itself."""

STRANGERS = ("models", "criteria", "optim", "tasks")
"""Rooms that only the registry brings together, so that each of their files can be replaced by another."""

LARGEST_FILE = 450
LONGEST_FUNCTION = 60


def room(module: str) -> str:
    """The room of a module: "decoding" for nmt_cli.decoding.beam_search, "cli" for nmt_cli.cli."""
    return module.split(".")[1]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Every module of the package that `tree` imports, lazily or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the room that they reach into"
            assert node.module is not None
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if is_module(name) else node.module for name in inner)


def is_module(name: str) -> bool:
    path = ROOT / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports_of(path: Path) -> set[str]:
    """The modules of the package that the file imports. The package itself is none: it only knows its version."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {name for name in imported_modules(tree) if name.startswith("nmt_cli.")} - {module_name(path)}


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_run_downward(path: Path) -> None:
    here = room(module_name(path))
    for name in imports_of(path):
        there = room(name)
        assert there == here or FLOORS[there] < FLOORS[here], f"{module_name(path)} imports {name}, which is no lower"
        assert not {here, there} <= set(STRANGERS) or there == here, f"{here} and {there} must not know each other"


def test_every_room_has_a_floor() -> None:
    assert {room(module_name(path)) for path in MODULES} <= set(FLOORS)


def test_every_room_and_its_floor_stand_in_the_document() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = {match[1]: int(match[2]) for match in re.finditer(r"^  (\w+)(?:\.py|/) +(\d)  ", page, re.MULTILINE)}
    assert shown == {name: floor for name, floor in FLOORS.items() if name != "__main__"}


def test_no_imports_run_in_circles() -> None:
    graph = {module_name(path): imports_of(path) for path in MODULES}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")
    assert set(graph) <= set(order)


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*/**/__init__.py")), ids=module_name)
def test_rooms_do_nothing_when_imported(path: Path) -> None:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    assert all(isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr)) for node in body)


def test_package_hands_its_names_on_lazily() -> None:
    code = (
        "import nmt_cli, sys; print(*[name for name in sys.modules if name.startswith('nmt_cli.') or name == 'torch'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", nmt_cli.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(nmt_cli, name) is not None


def modules_after(arguments: list[str]) -> set[str]:
    """The modules that are loaded once `nmt ARGUMENTS` is done."""
    code = (
        "import json, sys\n"
        f"sys.argv = ['nmt', *{arguments!r}]\n"
        "from nmt_cli.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert end.code in (0, None), end.code\n"
        "print('\\nMODULES' + json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.rpartition("MODULES")[2]))


@pytest.mark.parametrize("arguments", [["--help"], ["translate", "--help"], ["score", "--help"], ["prepare", "--help"]])
def test_help_needs_no_torch(arguments: list[str]) -> None:
    assert "torch" not in modules_after(arguments)


@pytest.mark.parametrize("path", [*MODULES, *sorted((ROOT / "tests").rglob("*.py"))], ids=str)
def test_files_stay_readable(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LARGEST_FILE, f"{path} has outgrown {LARGEST_FILE} lines: split it"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
            length = node.end_lineno - node.body[0].lineno + 1  # without the signature: a command's is its flags
            assert length <= LONGEST_FUNCTION, f"{path}:{node.lineno}: {node.name} has {length} lines: split it"


def test_unit_tests_mirror_the_package() -> None:
    """Every unit test stands where its subject stands: tests/unit/data/test_x.py for nmt_cli/data/x.py."""
    unit = ROOT / "tests" / "unit"
    strays = [
        path.relative_to(unit).as_posix()
        for path in sorted(unit.rglob("test_*.py"))
        if not subject_exists(path.relative_to(unit))
    ]
    assert strays == []


def subject_exists(test: Path) -> bool:
    """Whether the module exists that `test` is named for; test_translator_errors.py may cover part of translator.py."""
    stem = test.stem.removeprefix("test_")
    subjects = {path.stem for path in (PACKAGE / test.parent).glob("*.py")}
    return any(stem == subject or stem.startswith(f"{subject}_") for subject in subjects)


def test_every_file_of_the_package_is_in_the_wheel() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        patterns = tomllib.load(file)["tool"]["setuptools"]["package-data"]["nmt_cli"]
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert files == {path for pattern in patterns for path in PACKAGE.glob(pattern)}
