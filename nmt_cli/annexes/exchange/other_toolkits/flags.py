"""Flags of other toolkits, and what to use instead of them, for messages about unknown flags.

The file COMMAND.tsv has the flags that programs have for what the command does. Its first line
names the programs. Each other line has an answer, such as a flag of ours, and then the flags of
each program that it is for. The tables of docs/reference/flags.md are made of these files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def entries(table: str) -> Iterator[tuple[str, str, str]]:
    """Yield flag, program and answer of a table. The flag is max-tokens for --max_tokens."""
    header, *rows = [line.split("\t") for line in table.splitlines()]
    for answer, *cells in rows:
        for program, cell in zip(header[1:], cells, strict=True):
            for flag in cell.split():
                yield flag.lstrip("-").replace("_", "-"), program, answer


def answers(table: str) -> dict[str, str]:
    """Return the answers of a table by the flag."""
    programs_of: dict[str, dict[str, list[str]]] = {}  # by flag and answer
    for name, program, answer in entries(table):
        programs_of.setdefault(name, {}).setdefault(answer, []).append(program)
    return {name: _hint(programs_by_answer) for name, programs_by_answer in programs_of.items()}


def answers_of(command: str, program: str) -> dict[str, str]:
    """Return the answers of a command's table for one program by the flag."""
    return {name: answer for name, of, answer in entries(table_of(command)) if of == program}


def table_of(command: str) -> str:
    return (Path(__file__).parent / f"{command}.tsv").read_text(encoding="utf-8")


def _hint(programs_by_answer: dict[str, list[str]]) -> str:
    """Return the only answer, or the answer for each program."""
    hints = []
    for answer, programs in programs_by_answer.items():
        hint = f"use {answer}" if answer[0] in "-`" else answer
        if len(programs_by_answer) == 1:
            return hint
        hints.append(f"{', '.join(programs)}: {hint}")
    return "; ".join(hints)


# For a flag that belongs to another command, the first one of these.
COMMANDS = ("translate", "prepare", "train", "score", "average")
HINTS = {name: answers(table_of(name)) for name in COMMANDS}
