"""Flags of other toolkits, and what to use instead of them, for messages about unknown flags.

The file COMMAND.tsv has the flags that programs have for what the command does. Its first line
names the programs. Each other line has an answer, such as a flag of ours, and then the flags of
each program that it is for. The tables of docs/reference/flags.md are made of these files.
"""

from __future__ import annotations

from pathlib import Path


def answers(table: str) -> dict[str, str]:
    """Return the answers of a table by the flag, without its leading hyphens and with hyphens for
    underscores.
    """
    header, *rows = [line.split("\t") for line in table.splitlines()]
    programs: dict[str, dict[str, list[str]]] = {}  # by flag and answer
    for answer, *cells in rows:
        for program, cell in zip(header[1:], cells, strict=True):
            for flag in cell.split():
                plain = flag.lstrip("-").replace("_", "-")
                programs.setdefault(plain, {}).setdefault(answer, []).append(program)
    return {flag: _joined(of_flag) for flag, of_flag in programs.items()}


def _joined(programs: dict[str, list[str]]) -> str:
    """Return the only answer, or what each program means by the flag."""
    texts = {answer: f"use {answer}" if answer[0] in "-`" else answer for answer in programs}
    if len(texts) == 1:
        return "".join(texts.values())
    return "; ".join(f"{', '.join(programs[answer])}: {text}" for answer, text in texts.items())


COMMANDS = ("translate", "prepare", "train", "score", "average")
"""For a flag that belongs to another command, the first one of these."""
HINTS = {
    name: answers((Path(__file__).parent / f"{name}.tsv").read_text(encoding="utf-8"))
    for name in COMMANDS
}
