"""Words and units of texts, and the links between those of a line and of its output."""

from __future__ import annotations

import re

import regex

WORD = re.compile(r"\S+", re.ASCII)  # words stand between spaces of ASCII
# Chinese and Japanese have no spaces, so each character is a unit.
HAN = "\u3041-\u30ff\u3400-\u9fff"
LETTER = rf"[^\W{HAN}]"  # of a word, in `regex` also a mark on a letter
UNITS = regex.compile(rf"[{HAN}]|{LETTER}+|[^\w\s]")  # words and single signs

ALIGNMENT, PLACES_OF_UNITS = "alignment", "units"
# The notes of outputs that are links, and the words or units that they link.
LINKED = {ALIGNMENT: WORD, PLACES_OF_UNITS: UNITS}
Links = list[tuple[int, int]]
