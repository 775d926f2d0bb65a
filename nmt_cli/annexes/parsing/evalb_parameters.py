"""The parameter files of EVALB, such as `COLLINS.prm`: deleted labels, equal labels, when to stop.

One setting a line, name and value. Empty lines and lines that begin with `#` are comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nmt_cli.errors import DataError, counted, nearest, shown
from nmt_cli.files.text import read_lines

_ATTRIBUTES = {
    "MAX_ERROR": "max_error",
    "CUTOFF_LEN": "cutoff_length",
    "LABELED": "labeled",
    "DELETE_LABEL": "deleted_labels",
    "DELETE_LABEL_FOR_LENGTH": "deleted_for_length",
    "QUOTE_LABEL": "quote_labels",
    "EQ_LABEL": "equal_labels",
    "EQ_WORD": "equal_words",
}
_IGNORED = "DEBUG"  # prints more, but changes no score


@dataclass(frozen=True)
class Parameters:
    """EVALB's settings. The defaults are EVALB's without a parameter file: nothing is deleted."""

    max_error: int = 10  # max_error + 1 errors are tolerated
    # The second half of the summary is about sentences of at most this many words.
    cutoff_length: int = 40
    labeled: int = 1  # 0: labels of brackets are not compared
    # Words with these tags are removed, and brackets with these labels do not count.
    deleted_labels: frozenset[str] = frozenset()
    # Words with these tags are not part of the length.
    deleted_for_length: frozenset[str] = frozenset()
    quote_labels: frozenset[str] = frozenset()  # tags that parsers confuse on quotes
    equal_labels: frozenset[tuple[str, str]] = frozenset()
    equal_words: frozenset[tuple[str, str]] = frozenset()

    def same_label(self, one: str, other: str) -> bool:
        """Whether two labels are equal. Equality is not transitive."""
        return one == other or not self.equal_labels.isdisjoint([(one, other), (other, one)])

    def same_word(self, one: str, other: str) -> bool:
        return one == other or not self.equal_words.isdisjoint([(one, other), (other, one)])

    def deletes_bracket(self, label: str) -> bool:
        """Whether brackets with this label, without functional tags, do not count."""
        return any(self.same_label(label, deleted) for deleted in self.deleted_labels)


def read_parameters(path: Path) -> Parameters:
    """Read a parameter file.

    Raises:
        DataError: the file cannot be read, or a line has an unknown name or an invalid value.
            (EVALB ignores such lines, so that a misspelt name silently changes the score.)
    """
    parameters = Parameters()
    for number, line in enumerate(read_lines(path), start=1):
        words = re.findall(r"\S+", line, re.ASCII)
        if not words or line.startswith("#") or words[0] == _IGNORED:
            continue
        name, *values = words
        parameters = _with_setting(parameters, name, values, place=f"{path}:{number}")
    return parameters


def _with_setting(parameters: Parameters, name: str, values: list[str], place: str) -> Parameters:
    if name not in _ATTRIBUTES:
        raise DataError(
            f"{place}: {shown(name)} is not a parameter of EVALB. "
            f"{nearest(name, [*_ATTRIBUTES, _IGNORED])}"
        )
    takes = 2 if name.startswith("EQ_") else 1
    if len(values) != takes:
        raise DataError(f"{place}: {name} takes {counted(takes, 'value')}, not {len(values)}")
    attribute = _ATTRIBUTES[name]
    value: Any = getattr(parameters, attribute)
    if takes == 2:
        value |= {tuple(values)}
    elif isinstance(value, frozenset):
        value |= {values[0]}
    elif re.fullmatch(r"[+-]?[0-9]{1,9}", values[0]):
        value = int(values[0])
    else:
        raise DataError(f"{place}: {name} takes a whole number, not {shown(values[0])}")
    return replace(parameters, **{attribute: value})


COLLINS = read_parameters(Path(__file__).with_name("COLLINS.prm"))
"""The settings of the parameter file of published scores."""
