"""The results of translation: lines and their outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Output:
    """One output of a line."""

    text: str
    score: float  # log-probability divided by the length penalty
    tokens: list[str]  # the subwords of the output
    # The log-probability of each token, and of EOS unless the output was cut at its limit.
    token_scores: list[float]
    repairs: Mapping[str, int] = field(default_factory=dict)  # number of each kind
    ids: Sequence[int] = ()  # of the tokens
    # From what goes around the translation, by name.
    notes: Mapping[str, Any] = field(default_factory=dict)

    def noted(self, name: str, note: Any) -> Output:
        """Return the output with another note."""
        return replace(self, notes={**self.notes, name: note})

    @property
    def alignment(self) -> Sequence[tuple[int, int]]:
        """The words of the line and of `text` that belong together, by number, with `align`."""
        return self.notes.get("alignment", ())  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Translation:
    """A line and its outputs, best first, or samples as they were drawn.

    An empty line has one empty output with a score of 0.
    """

    source: str
    outputs: list[Output]
    source_length: int  # tokens, after truncation
    truncated: bool  # the line was longer than `max_source_length`
    unknown: bool = False  # nothing of the line is in the vocabulary
    # Tokens of the line or of its longest output. Where lines are split, of a sentence.
    longest: int = 0

    @property
    def text(self) -> str:
        """The best output."""
        return self.outputs[0].text


@dataclass(frozen=True)
class TargetScore:
    """The log-probability (natural) of a given target.

    An empty target has one token, the end of the sentence.
    """

    source: str
    target: str
    tokens: list[str]  # the subwords of the target
    token_scores: list[float]  # log-probability of each, and of EOS unless the target was cut
    source_truncated: bool  # the line was longer than `max_source_length`
    target_truncated: bool

    @property
    def score(self) -> float:
        """The sum over the tokens, not normalised by their number."""
        return math.fsum(self.token_scores)
