"""The list of mutations fits the code. `make mutants` tries them."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import ROOT, Mutation, mutations


def test_every_mutation_changes_one_place(tmp_path: Path) -> None:
    """And leaves Python that can be compiled, or TOML that can be read."""
    for mutation in mutations():
        file = tmp_path / mutation.path
        file.parent.mkdir(parents=True, exist_ok=True)
        original = (ROOT / mutation.path).read_text(encoding="utf-8")
        file.write_text(original, encoding="utf-8")
        mutation.apply(tmp_path)
        read = tomllib.loads if file.suffix == ".toml" else lambda text: ast.dump(ast.parse(text))
        assert read(file.read_text(encoding="utf-8")) != read(original), mutation.name


def test_every_mutation_has_a_name_and_tests() -> None:
    all_mutations = list(mutations())
    assert len(all_mutations) >= 60
    assert Counter(mutation.name for mutation in all_mutations).most_common(1)[0][1] == 1
    assert all(
        (ROOT / place.split("::")[0]).exists()
        for mutation in all_mutations
        for place in mutation.tests
    )


def test_a_text_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("x = 1\ny = 1\n")
    for old in ("1", "3"):
        with pytest.raises(ValueError, match=r"file\.py"):
            Mutation("name", "file.py", old, "2", ()).apply(tmp_path)
