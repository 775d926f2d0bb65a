"""The layout holds: imports run one way, packages import nothing by themselves, help is light."""

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
MODULES = sorted(
    set(PACKAGE.rglob("*.py")) - {PACKAGE / "__init__.py", PACKAGE / "annexes" / "__init__.py"}
)
"""Every module but the package itself: see `test_package_hands_its_names_on_lazily`."""

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LEVELS = {
    match[1]: int(match[2])
    for match in re.finditer(r"^  (\w+)(?:\.py|/) +(\d)  ", PAGE, re.MULTILINE)
}
LEVELS["__main__"] = 9
"""The level of every directory and file in the package's root.

A part imports from lower levels and from itself.
"""

STRANGERS = ("models", "criteria", "optim", "tasks")
"""Parts that only the registry brings together, so that each of their files can be replaced."""


def part(module: str) -> str:
    """The part of a module: "decoding" for nmt_cli.decoding.outputs, "parsing" for its annex."""
    return module.removeprefix("nmt_cli.").removeprefix("annexes.").split(".")[0]


def is_annex(module: str) -> bool:
    return module.startswith("nmt_cli.annexes.")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Every module of the package that `tree` imports, lazily or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the part that they reach into"
            assert node.module is not None
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if is_module(name) else node.module for name in inner)


def is_module(name: str) -> bool:
    path = ROOT / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports_of(path: Path) -> set[str]:
    """The modules of the package that the file imports.

    The package itself is none: it only knows its version.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {name for name in imported_modules(tree) if name.startswith("nmt_cli.")} - {
        module_name(path)
    }


def test_imports_run_downward() -> None:
    upward, strangers = [], []
    for path in MODULES:
        here = part(module_name(path))
        for name in imports_of(path):
            there = part(name)
            if there != here and LEVELS[there] >= LEVELS[here]:
                upward.append((module_name(path), name))
            if there != here and ({here, there} <= set(STRANGERS) or is_annex(name)):
                strangers.append((module_name(path), name))
    assert (upward, strangers) == ([], [])


def test_the_core_names_no_annex_and_no_other_program() -> None:
    others = re.compile(
        "gnmt|convs2s|bytenet|deep.?att|marian|hugging|ctranslate|fairseq|opennmt|starlette|uvicorn",
        re.IGNORECASE,
    )
    core = [path for path in MODULES if not is_annex(module_name(path))]
    named = [
        (path.name, match[0])
        for path in core
        if (match := others.search(path.read_text(encoding="utf-8")))
    ]
    assert named == []


def test_the_document_has_every_part() -> None:
    assert {part(module_name(path)) for path in MODULES} == set(LEVELS)


def test_no_imports_run_in_circles() -> None:
    graph = {module_name(path): imports_of(path) for path in MODULES}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")
    assert set(graph) <= set(order)


def test_directories_do_nothing_when_imported() -> None:
    files = [*PACKAGE.glob("*/**/__init__.py")]
    assert len(files) > 8
    assert [path for path in files if path.read_text(encoding="utf-8")] == []


def loaded(code: str) -> set[str]:
    """Return the modules that are loaded after `code` has run in a new process."""
    code = f"{code}\nimport json, sys\nprint('\\nMODULES' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(done.stdout.rpartition("MODULES")[2]))


def test_the_package_imports_its_names_when_they_are_used() -> None:
    assert not any(
        name == "torch" or name.startswith("nmt_cli.") for name in loaded("import nmt_cli")
    )
    assert all(getattr(nmt_cli, name) is not None for name in nmt_cli.__all__)
    assert [name for name in dir(nmt_cli) if not name.startswith("_")] == sorted(
        set(nmt_cli.__all__) - {"__version__"}
    )


SELECTED = {
    "model": "moe_transformer",
    "attention": "rotary",
    "criterion": "expected_reward",
    "optimizer": "sgd",
}


def test_help_needs_no_torch() -> None:
    lines = ["from nmt_cli.cli import main"]
    for arguments in (
        ["--help"],
        *(
            [name, "--help"]
            for name in (
                "translate",
                "score-targets",
                "score",
                "rerank",
                "prepare",
                "serve",
                "attention",
                "doctor",
                "train",
            )
        ),
        [
            "train",
            "--help",
            *(word for kind, name in SELECTED.items() for word in (f"--{kind}", name)),
        ],
        ["train", "--list-presets"],
    ):
        lines += [
            "try:",
            f"    main({arguments})",
            "except SystemExit as end:",
            "    assert not end.code",
        ]
    assert "torch" not in loaded("\n".join(lines))


CHANGING = {
    "rmtree",
    "unlink",
    "rename",
    "renames",
    "rmdir",
    "symlink_to",
    "hardlink_to",
    "touch",
    "chmod",
    "copymode",
    "move",
}
CHANGING |= {
    "write_text",
    "write_bytes",
    "copytree",
    "copy",
    "copy2",
    "copyfile",
    "symlink",
    "link",
    "truncate",
}

MAY_CHANGE = {
    ("nmt_cli/weights.py", "shutil.copymode"),  # safetensors writes the file by its name
    ("nmt_cli/annexes/recipes/command.py", "script.chmod"),
    ("nmt_cli/cli.py", "os.open"),  # of /dev/null, as the next one
    ("nmt_cli/streams.py", "os.open"),
    ("nmt_cli/files/staging.py", "os.open"),  # of a directory, for reading
    ("nmt_cli/files/opening.py", "path.open"),  # of pipes and devices
    ("nmt_cli/commands/prepare.py", "file.truncate"),  # after its lock
}
"""Calls outside files/durable.py that open a file to write or change what is on the disk."""


def changes_files(call: ast.Call) -> bool:
    """Whether the call writes, renames or deletes. A new file, opened with "xb", harms nothing."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    text = ast.unparse(call.func)
    if name == "open" and text != "os.open":
        modes = [
            value.value
            for value in call.args
            if isinstance(value, ast.Constant) and isinstance(value.value, str)
        ]
        opened_by_us = call.args and "durable.open_ours" in ast.unparse(call.args[0])
        return not opened_by_us and any(
            re.fullmatch(r"[rwabt+]*[wa+][rwabt+]*", mode) for mode in modes
        )
    if name == "replace":  # Path.replace has one argument, str.replace two
        return text == "os.replace" or (len(call.args) == 1 and not call.keywords)
    others = ("durable.", "checkpoint.", "dict")
    changing = (
        name in CHANGING and isinstance(call.func, ast.Attribute) and not text.startswith(others)
    )
    return changing or text in ("os.open", "os.remove")


def test_one_file_writes_renames_and_deletes() -> None:
    calls = {
        (path.relative_to(ROOT).as_posix(), ast.unparse(node.func))
        for path in MODULES
        if path != PACKAGE / "files" / "durable.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and changes_files(node)
    }
    assert calls == MAY_CHANGE


def test_tests_mirror_the_package() -> None:
    """tests/unit/data/test_x.py is for nmt_cli/data/x.py, an annex's test_x.py for its x.py."""
    places = [(ROOT / "tests" / "unit", PACKAGE), (ROOT / "tests" / "annexes", PACKAGE / "annexes")]
    strays = [
        test
        for tests, package in places
        for test in sorted(tests.rglob("test_*.py"))
        if not subject_exists(test.relative_to(tests), package)
    ]
    assert strays == []


def subject_exists(test: Path, package: Path) -> bool:
    """Whether the module exists that `test` is named for.

    Test_translator_errors.py may cover part of translator.py.
    """
    stem = test.stem.removeprefix("test_")
    subjects = {path.stem for path in (package / test.parent).glob("*.py")}
    return any(stem == subject or stem.startswith(f"{subject}_") for subject in subjects)


def test_every_file_of_the_package_is_in_the_wheel() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        patterns = tomllib.load(file)["tool"]["setuptools"]["package-data"]["nmt_cli"]
    files = {
        path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert files == {path for pattern in patterns for path in PACKAGE.glob(pattern)}
