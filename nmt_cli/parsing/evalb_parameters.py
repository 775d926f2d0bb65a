"""The parameter files of EVALB (`COLLINS.prm` and its kin): what is deleted, what counts as equal, when to stop.

One setting a line, name and value; a line that begins with `#`, or has fewer than three characters, is a comment.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nmt_cli.errors import DataError, nearest

_DEBUG = "DEBUG"
_NUMBERS = {"MAX_ERROR": "max_error", "CUTOFF_LEN": "cutoff_length", "LABELED": "labeled"}
_LABELS = {
    "DELETE_LABEL": "deleted_labels",
    "DELETE_LABEL_FOR_LENGTH": "deleted_for_length",
    "QUOTE_LABEL": "quote_labels",
}
_PAIRS = {"EQ_LABEL": "equal_labels", "EQ_WORD": "equal_words"}
_KNOWN = (_DEBUG, *_NUMBERS, *_LABELS, *_PAIRS)

_SPACE = " \t\v\f\r"
_GAP = re.compile(f"[{_SPACE}]+")
_NUMBER = re.compile(r"[+-]?[0-9]{1,100}")


@dataclass(frozen=True)
class Parameters:
    """EVALB's settings. The defaults are those of the program without a parameter file: nothing is deleted."""

    max_error: int = 10  # one error more than this is suffered; the next stops the program
    cutoff_length: int = 40  # the second half of the summary counts sentences of at most so many words
    labeled: int = 1  # 0: a bracket matches whatever its label
    deleted_labels: frozenset[str] = frozenset()  # leaves under such a tag go; brackets so called do not count
    deleted_for_length: frozenset[str] = frozenset()  # tags whose words are not part of the length
    quote_labels: frozenset[str] = frozenset()  # tags that parsers give to quotes: see `brackets`
    equal_labels: frozenset[tuple[str, str]] = frozenset()
    equal_words: frozenset[tuple[str, str]] = frozenset()

    def same_label(self, one: str, other: str) -> bool:
        """Whether two labels are equal. `EQ_LABEL A B` and `EQ_LABEL B C` do not make A and C equal."""
        return one == other or (one, other) in self.equal_labels or (other, one) in self.equal_labels

    def same_word(self, one: str, other: str) -> bool:
        return one == other or (one, other) in self.equal_words or (other, one) in self.equal_words

    def deletes_bracket(self, label: str) -> bool:
        """Whether a bracket with this label (functional tags cut off) does not count. Equal labels go together here."""
        return any(self.same_label(label, deleted) for deleted in self.deleted_labels)


COLLINS = Parameters(
    deleted_labels=frozenset(("TOP", "-NONE-", ",", ":", "``", "''", ".")),
    deleted_for_length=frozenset(("-NONE-",)),
    equal_labels=frozenset((("ADVP", "PRT"),)),
)
"""What `COLLINS.prm`, the parameter file of every published score, says."""


def _nobody(_: str) -> None:
    """The listener where nobody wants to know."""


def read_parameters(path: Path, tell: Callable[[str], None] = _nobody) -> Parameters:
    """Reads a parameter file.

    Args:
        tell: told what is passed over, as the original does: DEBUG, what follows a number, a pair that is none.

    Raises:
        DataError: it cannot be read, or a line holds an unknown name or no value that fits. (The original passes over
            such a line, so that a misspelt name changes the score in silence.)
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot read this parameter file: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 ({error.reason}); is this an EVALB parameter file?") from error
    parameters = Parameters()
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.rstrip(_SPACE)
        if len(line) >= 3 and not line.startswith("#"):
            parameters = _with_setting(parameters, line, f"{path}:{number}", tell)
    return parameters


def _with_setting(parameters: Parameters, line: str, place: str, tell: Callable[[str], None]) -> Parameters:
    name, *rest = _GAP.split(line, maxsplit=1)
    value = rest[0] if rest else ""
    if name not in _KNOWN:
        raise DataError(f"{place}: {name or line!r} is no parameter of EVALB. {nearest(name, _KNOWN)}")
    if not value:
        raise DataError(f"{place}: {name} has no value")
    if name == _DEBUG:
        if _number(name, value, place, tell):
            tell(f"{place}: {name} {value} is ignored: nothing more is printed")
        return parameters
    if name in _NUMBERS:
        return _with(parameters, _NUMBERS[name], _number(name, value, place, tell))
    if name in _LABELS:
        return _with(parameters, _LABELS[name], getattr(parameters, _LABELS[name]) | {value})
    pair = tuple(_GAP.split(value))
    if len(pair) != 2:
        tell(f"{place}: {name} takes two values that count as equal, and here are {len(pair)}: the line is ignored")
        return parameters
    return _with(parameters, _PAIRS[name], getattr(parameters, _PAIRS[name]) | {pair})


def _with(parameters: Parameters, attribute: str, value: Any) -> Parameters:
    return replace(parameters, **{attribute: value})


def _number(name: str, value: str, place: str, tell: Callable[[str], None]) -> int:
    """The number that the value begins with, as C's atoi reads it."""
    found = _NUMBER.match(value)
    if found is None:
        raise DataError(f"{place}: {name} takes a whole number, not {value!r}")
    left_over = value[found.end() :].strip(_SPACE)
    if left_over:
        tell(f"{place}: {name} is {found[0]}; what follows is ignored: {left_over}")
    return int(found[0])
