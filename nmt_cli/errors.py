"""The errors that a user can cause or meet. `cli.main` prints their message and exits with their code; nobody
sees a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NmtError(Exception):
    """Something that the user can mend. The message names the place, what was expected and the next step."""

    exit_code = 1


class UsageError(NmtError):
    """Flags or settings that do not fit (exit code 2, as for every wrongly typed command line)."""

    exit_code = 2


class DataError(NmtError):
    """A file's content is not what it must be."""


class CheckpointError(NmtError):
    """A folder is no checkpoint, or a damaged one, or one that does not fit."""


class TrainingError(NmtError):
    """Training cannot go on: numbers that are not finite, memory exhausted, a rank lost."""


class Interrupted(NmtError):
    """A signal asked the command to stop, and it stopped in good order.

    Args:
        signal_number: the signal; the exit code is 128 + that number, as a shell reports it.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that offers the known names nearest to `name`: 'Did you mean adam?', or lists them all where
    none is near.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known: {', '.join(names)}." if names else "None is registered."
