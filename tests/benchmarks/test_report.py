"""The text of a report, and its place in a page."""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import Report, begin, digits, inserted, machine, proc_fields, shown, table
from benchmarks.samples import Spread

PAGES = Path(__file__).resolve().parents[2] / "docs"


class Figure:
    """Stands for a figure of matplotlib."""

    def savefig(self, path: Path, **options: Any) -> None:
        path.write_text("<svg/>", encoding="utf-8")


def test_numbers_have_three_digits() -> None:
    assert [digits(value) for value in (0.12345, 1.234, 45.67, 123.4, 12345.6)] == [
        *("0.123", "1.23", "45.7", "123", "12,346")
    ]
    assert shown(Spread(1.0, 2.0, 3.0)) == "2 (1-3)"
    assert shown(None) == ""


def test_a_table_is_markdown() -> None:
    assert table(["", "a"], [["x", "1"]]) == "|  | a |\n| --- | ---: |\n| x | 1 |"


def test_a_report_names_date_machine_versions_and_command() -> None:
    report = Report("speed", "The  method,\non two lines.", {"nmt": "1.2", "other": "3"})
    report.add("### A title")
    command = ["-m", "benchmarks.translation", "--python", "peer=/home/somebody/python", "--out", "/tmp/here", "x" * 90]
    text = report.text(datetime.date(2026, 1, 2), command)
    assert text.startswith("2026-01-02. Machine: ")
    assert "nmt 1.2; other 3." in text
    assert "\nThe method, on two lines.\n" in text
    assert "python -m benchmarks.translation --python peer=python --out here \\\n" in text
    assert text.endswith("\n### A title\n")
    assert max(map(len, text.split("\n"))) <= 120


def test_a_report_is_inserted_into_a_page_with_its_figures(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- speed -->\n\nold\n\n<!-- end of speed -->\n\nthe rest\n", encoding="utf-8")
    report = Report("speed", "Method.")
    report.add_figure("speed-base", "Speed", Figure())
    for _ in range(2):  # the second time replaces the first
        report.write(tmp_path, page)
    text = page.read_text("utf-8")
    assert (text.count("Method."), "old" in text) == (1, False)
    assert text.endswith("![Speed](page/speed-base.svg)\n\n<!-- end of speed -->\n\nthe rest\n")
    assert (tmp_path / "page" / "speed-base.svg").is_file()
    assert "![Speed](speed-base.svg)" in (tmp_path / "speed.md").read_text("utf-8")


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="<!-- speed -->"):
        inserted("# Page\n", "speed", "text")


def test_a_page_is_checked_before_anything_is_measured(tmp_path: Path) -> None:
    options = argparse.Namespace(out=tmp_path / "out", page=tmp_path / "page.md")
    with pytest.raises(SystemExit, match=r"page\.md"):
        begin(options, "speed")
    options.page.write_text("# Page\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="<!-- speed -->"):
        begin(options, "speed")
    options.page = None
    begin(options, "speed").write_text("old", encoding="utf-8")
    assert not begin(options, "speed").exists()


@pytest.mark.parametrize("name", ["translation", "growth", "quality"])
def test_the_documentation_has_the_marks(name: str) -> None:
    assert "new" in inserted((PAGES / "benchmarks.md").read_text("utf-8"), name, "new")


def test_the_machine_is_described(tmp_path: Path) -> None:
    assert " cores, " in machine()
    (tmp_path / "cpuinfo").write_text("model name\t: CPU A\nflags\t\t: a b\n\nmodel name\t: CPU B\nempty\t:\n", "utf-8")
    assert proc_fields(str(tmp_path / "cpuinfo")) == {"model name": "CPU A", "flags": "a b", "empty": ""}
    assert proc_fields(str(tmp_path / "none")) == {}
