"""Write reference/flags.md, the flags of other toolkits: `python docs/coming_from.py`."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parent / "reference" / "flags.md"
TABLES = Path(__file__).parent.parent / "nmt_cli" / "annexes" / "exchange" / "other_toolkits"
PLACE = re.compile(r"(<!-- begin (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """Return the page with the tables as they are now."""
    return PLACE.sub(lambda place: place[1] + table(TABLES / place[2]) + place[3], page)


def table(path: Path) -> str:
    """Return a file of the directory as a table in Markdown."""
    header, *rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [header, ["---"] * len(header)]
    for answer, *cells in rows:
        lines.append(
            [marked(answer), *(", ".join(f"`{flag}`" for flag in cell.split()) for cell in cells)]
        )
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def marked(answer: str) -> str:
    """Return an answer with its flags in backticks, where they do not stand in a command in
    backticks.
    """
    parts = answer.split("`")
    parts[::2] = [re.sub(r"(?<!\S)--[a-z][a-z0-9-]*", r"`\g<0>`", part) for part in parts[::2]]
    marked = ""
    for number, part in enumerate(parts):
        marked += f"`{part}`" if number % 2 else part
    return marked


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
