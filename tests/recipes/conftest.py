"""The recipes' Python files are scripts in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture(scope="session")
def recipes() -> Path:
    return RECIPES
