"""User errors.

`cli.main` prints the message, without a traceback, and exits with the error's code. Under torchrun
one rank reports an error, so torchrun's variables are read here, too.
"""

from __future__ import annotations

import difflib
import os
import re
import reprlib
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

PATIENCE = 10.0
"""Seconds that rank 0 has to report an error before the other ranks end."""

_REPR = reprlib.Repr()
_REPR.maxlevel = 3
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = 50
_REPR.maxstring = _REPR.maxother = 500  # more than what is shown: it takes out the middle


class NmtError(Exception):
    """An error that the user can fix. The message has the place, the problem and the next step."""

    exit_code = 1


class UsageError(NmtError):
    """Wrong flags or settings. The exit code is 2, as for any wrong command line."""

    exit_code = 2


class DataError(NmtError):
    """A file has the wrong content."""


class CheckpointError(NmtError):
    """A checkpoint is missing, damaged or does not fit."""


class TrainingError(NmtError):
    """Training cannot continue: out of memory, too many non-finite updates, or a rank failed."""


class Interrupted(NmtError):
    """A signal stopped the command cleanly. The exit code is 128 + its number, as in a shell."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


@contextmanager
def main_rank_reports() -> Iterator[None]:
    """A context for errors that all ranks meet before they join.

    Rank 0 raises them, and the others exit later.
    """
    try:
        yield
    except Exception as error:
        code = getattr(error, "exit_code", None)
        rank, _ = rank_and_size()
        if code is None or rank == 0:
            raise
        time.sleep(PATIENCE)  # torchrun stops all ranks when one ends
        raise SystemExit(code) from error


def rank_and_size() -> tuple[int, int]:
    """Return this process's number among the ranks that torchrun started, and the number of ranks.

    Raises:
        UsageError: the variables are not torchrun's. A shell or a cluster can leave some of them
            behind.
    """
    rank = environment_number("RANK", 0)
    size = environment_number("WORLD_SIZE", 1)
    if rank >= size:
        raise UsageError(
            f"RANK is {rank} and WORLD_SIZE {size}: unset both, or start the command with torchrun"
        )
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if size > 1 and missing:
        raise UsageError(
            f"WORLD_SIZE is {size} without {missing[0]}: unset WORLD_SIZE, or start with torchrun"
        )
    return rank, size


def environment_number(name: str, default: int) -> int:
    """Return the number in an environment variable, and the default if it is unset or empty."""
    text = os.environ.get(name) or str(default)
    if not re.fullmatch("[0-9]{1,9}", text):
        raise UsageError(
            f"the environment variable {name} is not a number, but {shown(text)}: unset it"
        )
    return int(text)


def gpu_called(name: str, gpus: Callable[[], int]) -> int | None:
    """Return the number of the GPU called `auto`, `cuda` or `cuda:N`, or None for the CPU.

    `cuda` is the GPU of this rank. `auto` is the same, or `cpu` if there is none.

    Args:
        gpus: returns the number of GPUs that the process sees. It is not called for `cpu`.

    Raises:
        UsageError: the name is none of these, or there is no such GPU.
    """
    if name == "cpu":
        return None
    count = gpus()
    if name == "auto":
        if count == 0:
            return None
        name = "cuda"
    if name != "cuda" and not (name.startswith("cuda:") and name[5:].isdecimal()):
        raise UsageError(f"--device must be auto, cpu, cuda or cuda:N, not {shown(name)}")
    index = int(name[5:]) if ":" in name else environment_number("LOCAL_RANK", 0)
    if count == 0:
        raise UsageError(f"--device {name}: no GPU is available; use --device cpu")
    if index >= count:
        raise UsageError(
            f"--device {name}: this process sees {counted(count, 'GPU')}; use --device cpu, or "
            "fewer processes"
        )
    return index


def missing_package(user: str, error: ImportError, extra: str = "") -> UsageError:
    """Return the error that a flag or command needs a package.

    Args:
        user: the flag or command.
        extra: the extra of nmt-cli that installs the package, if there is one.
    """
    wanted = f"'nmt-cli[{extra}]'" if extra else error.name
    return UsageError(f"{user} needs the package {error.name}: pip install {wanted}")


def shown(value: object, characters: int = 60) -> str:
    """Return the beginning of a value's `repr` on one line, for a message.

    Values of files may be of any length and depth. Little more of them is read than what is shown.
    """
    try:
        text = re.sub(r"\s*\n\s*", " ", _REPR.repr(value))
    except ValueError:  # Python refuses to print very large numbers
        text = "a value with an integer of thousands of digits"
    if len(text) > characters:
        text = text[: characters - 3] + "..."
    return text


def command_line(*words: object) -> str:
    """Return the call of `nmt` with these words, as one types it."""
    return shlex.join(["nmt", *map(str, words)])


def import_flags(modules: Iterable[str]) -> list[str]:
    """Return the words of a command line that import these modules."""
    return [word for module in modules for word in ("--import", module)]


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural unless the number is 1."""
    plural = "" if number == 1 else "s"
    return f"{number:,} {noun}{plural}"


def check_iterable(value: object, expected: str) -> None:
    """Raise UsageError unless `value` is an iterable of strings."""
    # A string alone would be read letter by letter.
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise UsageError(f"expected {expected}, not {type(value).__name__}: {shown(value)}")


def near(name: str, known: Iterable[str], cutoff: float = 0.75) -> list[str]:
    """Return up to three known names that are like `name`, or that have all its words."""
    names = sorted(known)
    words = set(re.split("[-_]", name))
    similar = difflib.get_close_matches(name, names, cutoff=cutoff)
    longer = [other for other in names if words.issubset(re.split("[-_]", other))]
    return list(dict.fromkeys([*similar, *longer]))[:3]


def nearest(name: str, known: Iterable[str], listing: str = "") -> str:
    """Return a sentence with the known names near `name`, and the `listing`.

    Where no name is near and no listing is given, it has all names.
    """
    names = sorted(known)
    similar = near(name, names, cutoff=0.5)
    if similar:
        return f"Did you mean {' or '.join(similar)}? {listing}".rstrip()
    if listing:
        return listing
    if not names:
        return "None is registered."
    return f"Known: {', '.join(names)}."
