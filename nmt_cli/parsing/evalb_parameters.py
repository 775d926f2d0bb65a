"""The parameter files of EVALB, such as `COLLINS.prm`: deleted labels, equal labels, when to stop.

One setting a line, name and value. A line that begins with `#` or has fewer than three characters is a comment.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nmt_cli.errors import DataError, nearest
from nmt_cli.files.text import read_lines

_NUMBERS = {"MAX_ERROR": "max_error", "CUTOFF_LEN": "cutoff_length", "LABELED": "labeled", "DEBUG": ""}
_LABELS = {
    "DELETE_LABEL": "deleted_labels",
    "DELETE_LABEL_FOR_LENGTH": "deleted_for_length",
    "QUOTE_LABEL": "quote_labels",
}
_PAIRS = {"EQ_LABEL": "equal_labels", "EQ_WORD": "equal_words"}
_KNOWN = _NUMBERS | _LABELS | _PAIRS

_SPACE = " \t\v\f\r"
_GAP = re.compile(f"[{_SPACE}]+")
_NUMBER = re.compile(r"[+-]?[0-9]{1,100}")


@dataclass(frozen=True)
class Parameters:
    """EVALB's settings. The defaults are EVALB's without a parameter file: nothing is deleted."""

    max_error: int = 10  # max_error + 1 errors are tolerated
    cutoff_length: int = 40  # the second half of the summary is about sentences of at most this many words
    labeled: int = 1  # 0: labels of brackets are not compared
    deleted_labels: frozenset[str] = frozenset()  # words with these tags are removed; brackets so labelled do not count
    deleted_for_length: frozenset[str] = frozenset()  # words with these tags are not part of the length
    quote_labels: frozenset[str] = frozenset()  # tags that parsers confuse on quotes
    equal_labels: frozenset[tuple[str, str]] = frozenset()
    equal_words: frozenset[tuple[str, str]] = frozenset()

    def same_label(self, one: str, other: str) -> bool:
        """Whether two labels are equal. Equality is not transitive."""
        return one == other or (one, other) in self.equal_labels or (other, one) in self.equal_labels

    def same_word(self, one: str, other: str) -> bool:
        return one == other or (one, other) in self.equal_words or (other, one) in self.equal_words

    def deletes_bracket(self, label: str) -> bool:
        """Whether a bracket with this label (without functional tags) or an equal one does not count."""
        return any(self.same_label(label, deleted) for deleted in self.deleted_labels)


COLLINS = Parameters(
    deleted_labels=frozenset(("TOP", "-NONE-", ",", ":", "``", "''", ".")),
    deleted_for_length=frozenset(("-NONE-",)),
    equal_labels=frozenset((("ADVP", "PRT"),)),
)
"""The settings of `COLLINS.prm`, the parameter file of published scores."""


def read_parameters(path: Path, note: Callable[[str], None] = lambda remark: None) -> Parameters:
    """Read a parameter file.

    Args:
        note: called with a remark about each setting that is ignored, as in EVALB: DEBUG, text after a number, a pair
            without exactly two values.

    Raises:
        DataError: the file cannot be read or is not UTF-8, or a line has an unknown name or an invalid value. (EVALB
            ignores such lines, so that a misspelt name silently changes the score.)
    """
    parameters = Parameters()
    for number, raw in enumerate(read_lines(path), start=1):
        line = raw.rstrip(_SPACE)
        if len(line) >= 3 and not line.startswith("#"):
            parameters = _with_setting(parameters, line, f"{path}:{number}", note)
    return parameters


def _with_setting(parameters: Parameters, line: str, place: str, note: Callable[[str], None]) -> Parameters:
    name, value = (*_GAP.split(line, maxsplit=1), "")[:2]
    if name not in _KNOWN:
        raise DataError(f"{place}: {name or line!r} is not a parameter of EVALB. {nearest(name, _KNOWN)}")
    if not value:
        raise DataError(f"{place}: {name} has no value")
    attribute = _KNOWN[name]
    if name in _LABELS:
        return replace(parameters, **{attribute: getattr(parameters, attribute) | {value}})
    if name in _PAIRS:
        pair = tuple(_GAP.split(value))
        if len(pair) != 2:
            note(f"{place}: {name} takes two values, not {len(pair)}: the line is ignored")
            return parameters
        return replace(parameters, **{attribute: getattr(parameters, attribute) | {pair}})
    number = _NUMBER.match(value)  # as C's atoi
    if number is None:
        raise DataError(f"{place}: {name} takes a whole number, not {value!r}")
    if rest := value[number.end() :].strip(_SPACE):
        note(f"{place}: {name} is {number[0]}; the text after it is ignored: {rest}")
    if attribute:
        return replace(parameters, **{attribute: int(number[0])})  # type: ignore[arg-type]
    if int(number[0]):
        note(f"{place}: {name} {value} is ignored")
    return parameters
