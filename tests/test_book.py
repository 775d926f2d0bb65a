"""The tutorial: its exercises can be solved, its checks fail on mistakes, its chapters run."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "docs" / "book"
EXERCISES = BOOK / "exercises"
CHAPTERS = sorted(BOOK.glob("[0-9]*.md"))
sys.path.insert(0, str(EXERCISES))

import exercises  # noqa: E402
import solutions  # noqa: E402


def functions(module: ModuleType) -> dict[str, str]:
    """The public functions that `module` defines, with their signatures."""
    members = inspect.getmembers(module, inspect.isfunction)
    return {
        name: str(inspect.signature(member))
        for name, member in members
        if member.__module__ == module.__name__
    }


def checked(answers: str, folder: Path, *arguments: str) -> dict[str, set[str]]:
    """Check the module `answers`. Return the names of the checks by "PASSED" and "FAILED"."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rA",
        "-q",
        str(folder),
        *arguments,
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "NMT_BOOK_ANSWERS": answers},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    outcomes: dict[str, set[str]] = {"PASSED": set(), "FAILED": set()}
    for outcome, name in re.findall(r"^(PASSED|FAILED) \S*::test_(\w+)", done.stdout, re.MULTILINE):
        outcomes[outcome].add(name)
    return outcomes


def test_solutions_pass_every_check() -> None:
    assert checked("solutions", EXERCISES) == {"PASSED": set(functions(exercises)), "FAILED": set()}


WRONG = {
    "[begin, *ids], [*ids, end]": "[begin, *ids, end], [*ids, end]",
    "start += 2 if fits else 1": "start += 1",
    "2 * i / d_model)\n        vector": "i / d_model)\n        vector",
    "[-math.sin(angle), math.cos(angle)]": "[math.sin(angle), math.cos(angle)]",
    "(scores - scores.amax(1, keepdim=True))": "scores",
    "dtype=torch.bool).tril()": "dtype=torch.bool).triu()",
    "(heads, -1)).transpose(1, 2)": "(-1, heads)).permute(0, 3, 1, 2)",
    "centred.square().mean(-1, keepdim=True)": "x.var(-1, keepdim=True)",
    "+ 3 * norm": "+ 2 * norm",
    "math.ceil(distance / (k // 2))": "math.ceil(distance / k)",
    "min(step**-0.5": "max(step**-0.5",
    "/ len(probabilities))": ")",
    "epsilon / V +": "epsilon * (token != target) / (V - 1) +",
    "/ (1 - rate)": "",
    "(5 + length) / 6": "length",
    "if last == end:": "if last == begin:",
    "weights.mean(0).argmax(1)": "weights[0].argmax(1)",
}
"""For each exercise in order, a mistake that a reader may make."""


def test_mistakes_are_found(tmp_path: Path) -> None:
    """Every check fails on a solution that is nearly right."""
    text = (EXERCISES / "solutions.py").read_text(encoding="utf-8")
    assert [right for right in WRONG if text.count(right) != 1] == []
    for right, wrong in WRONG.items():
        text = text.replace(right, wrong)
    (tmp_path / "wrong.py").write_text(text, encoding="utf-8")
    (tmp_path / "test_exercises.py").write_bytes((EXERCISES / "test_exercises.py").read_bytes())
    assert checked("wrong", tmp_path, "--rootdir", str(ROOT))["FAILED"] == set(functions(exercises))


def test_exercises_solutions_and_chapters_agree() -> None:
    assert functions(exercises) == functions(solutions)
    shown = [
        name
        for page in CHAPTERS
        for name in re.findall(r"exercises\.py\n:pyobject: (\w+)", page.read_text())
    ]
    assert sorted(shown) == sorted(functions(exercises))


def test_every_chapter_is_executed_and_listed() -> None:
    listed = re.findall(
        r"^(\d+-\w+)$", (BOOK / "index.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == sorted(page.stem for page in CHAPTERS)
    for page in CHAPTERS:
        text = page.read_text(encoding="utf-8")
        assert text.startswith(
            "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n\n# "
        ), page
        assert "```python" not in text, f"{page}: a block that is not executed"


def test_a_failing_block_fails_the_build(tmp_path: Path) -> None:
    """The flags are `make docs`'s and the configuration the site's, without the commands' pages."""
    pytest.importorskip("myst_nb")
    pytest.importorskip("furo")
    pages = tmp_path / "pages"
    pages.mkdir()
    reference = '    app.connect("builder-inited", write_command_reference)\n'
    before, after = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8").split(reference)
    (pages / "conf.py").write_text(before + after, encoding="utf-8")
    header = CHAPTERS[0].read_text(encoding="utf-8").partition("# ")[0]
    (pages / "index.md").write_text(
        f"{header}# Page\n\n```{{code-cell}} python\nassert 1 + 1 == 3\n```\n"
    )
    flags = "-q -W --keep-going -b html".split()
    command = [sys.executable, "-m", "sphinx", *flags, str(pages), str(tmp_path / "build")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "assert 1 + 1 == 3" in done.stderr
    warnings = [line for line in done.stderr.split("\n") if "WARNING: " in line]
    assert all(
        "Executing notebook failed" in line or "[mystnb.exec]" in line for line in warnings
    ), warnings
