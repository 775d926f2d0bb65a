"""The functions of the package that the five commands enter, with the paper's Transformer.

Run as a program, it calls `nmt` with each list of arguments in a JSON file, and prints the first
lines of all functions that were entered, by file.
"""

from __future__ import annotations

import ast
import contextlib
import json
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

Entered = defaultdict[str, set[int]]


def enter(calls: list[list[str]], package: str) -> Entered:
    """Call `nmt` with each list of arguments.

    Return the first lines of the functions that were entered, by file.
    """
    entered: Entered = defaultdict(set)

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package):
            entered[code.co_filename].add(code.co_firstlineno)

    threading.setprofile(note)
    sys.setprofile(note)
    from nmt_cli.cli import main

    for arguments in calls:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                main(arguments)
        except SystemExit as end:
            if end.code:
                raise
    sys.setprofile(None)
    return entered


def functions(path: Path) -> dict[int, str]:
    """Return the names of all functions of a file by the line of their first decorator or `def`."""
    lines_by_function = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines_by_function[
                min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            ] = node.name
    return lines_by_function


if __name__ == "__main__":
    lines_entered = enter(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), sys.argv[2])
    print(json.dumps({path: sorted(lines) for path, lines in lines_entered.items()}))
