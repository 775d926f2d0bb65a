"""The code is read once: few tokens a statement, names that say what a thing is, short summaries.

Lines of at most 100 columns are ruff's.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "nmt_cli"
AROUND = [ROOT / "tests", ROOT / "benchmarks"]

TOKENS_A_STATEMENT = {"core": 10.5, "package": 10.8}
"""At most so many. Operators, names, numbers and strings count, docstrings and comments do not."""

VAGUE = {"found", "each", "own", "theirs", "made", "kept"}
"""Names of variables that say nothing of the thing."""

LEFT = {"vague names": 0, "summaries on two lines": 2}
"""Those in the package that are left. These numbers may only fall."""

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
COUNTED = {tokenize.OP, tokenize.NAME, tokenize.NUMBER, tokenize.STRING}
COUNTED.add(getattr(tokenize, "FSTRING_START", tokenize.STRING))


def read(path: Path) -> tuple[str, ast.Module]:
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)


def size(path: Path) -> tuple[int, int]:
    """The tokens and the statements of a file. An f-string is one token in every Python."""
    text, tree = read(path)
    documents: set[int] = set()
    statements = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documents.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.stmt):
            statements += 1
    tokens = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == getattr(tokenize, "FSTRING_END", None):
            depth -= 1
        elif token.type in COUNTED and depth == 0 and token.start[0] not in documents:
            tokens += 1
        if token.type == getattr(tokenize, "FSTRING_START", None):
            depth += 1
    return tokens, statements


@pytest.mark.parametrize("ring", TOKENS_A_STATEMENT)
def test_a_statement_has_few_tokens(ring: str) -> None:
    files = [
        path
        for path in PACKAGE.rglob("*.py")
        if ring == "package" or path.relative_to(PACKAGE).parts[0] not in ("annexes", "fast")
    ]
    sizes = [size(path) for path in files]
    tokens = sum(tokens for tokens, _ in sizes)
    statements = sum(statements for _, statements in sizes)
    assert tokens / statements <= TOKENS_A_STATEMENT[ring]


def vague_names(path: Path) -> Iterator[str]:
    for node in ast.walk(read(path)[1]):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
            yield f"{path}:{node.lineno}: {node.id}"
        elif isinstance(node, ast.arg) and node.arg in VAGUE:
            yield f"{path}:{node.lineno}: {node.arg}"


def long_summaries(path: Path) -> Iterator[str]:
    """Docstrings whose first paragraph has several lines."""
    for node in ast.walk(read(path)[1]):
        if isinstance(node, DOCUMENTED):
            document = ast.get_docstring(node) or ""
            if "\n" in document.split("\n\n")[0]:
                yield f"{path}:{node.body[0].lineno}"


HABITS = {"vague names": vague_names, "summaries on two lines": long_summaries}


@pytest.mark.parametrize("habit", HABITS)
def test_habits_that_are_lost_do_not_come_back(habit: str) -> None:
    around = [path for folder in AROUND for path in sorted(folder.rglob("*.py"))]
    assert [place for path in around for place in HABITS[habit](path)] == []
    places = [place for path in sorted(PACKAGE.rglob("*.py")) for place in HABITS[habit](path)]
    assert len(places) <= LEFT[habit], "\n".join(places)
