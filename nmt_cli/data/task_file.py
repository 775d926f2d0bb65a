"""`task.json`, in which every task says what it is: in prepared data and in checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt_cli.errors import DataError, UsageError

TASK_FILE = "task.json"
SCHEMA = 1


def write_task_file(folder: Path, content: Mapping[str, Any]) -> None:
    """Writes a task's `task.json` to `folder`, which must exist."""
    text = json.dumps({"schema": SCHEMA, **content}, indent=2, ensure_ascii=False)
    (folder / TASK_FILE).write_text(text + "\n", encoding="utf-8")


@contextmanager
def task_file(folder: Path) -> Iterator[dict[str, Any]]:
    """What `write_task_file` wrote to `folder`; inside the block, whatever is missing in it is told of as damage.

    Raises:
        DataError: the file is missing or damaged, or of a schema that this version does not know.
    """
    path = folder / TASK_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise DataError(f"{path}: its schema is {content['schema']!r}, this version reads {SCHEMA}")
        yield content
    except OSError as error:
        raise DataError(f"{path}: cannot read it: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError) as error:
        raise DataError(f"{path}: damaged: {type(error).__name__}: {error}") from error
