"""The results of `nmt score`, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nmt_cli.metrics.bleu import Score
from nmt_cli.metrics.significance import Comparison

_LABELS = {"bleu": "BLEU", "chrf": "chrF2", "chrf++": "chrF2++", "ter": "TER"}
_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Report:
    """Everything that is printed."""

    systems: list[str]
    references: list[str]
    lines: int
    target_language: str | None  # of the Moses tokenizer, if it was used
    scores: list[Score]
    comparisons: list[Comparison]
    groups: dict[str, int]  # lines of each label

    def as_object(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {key: value for key, value in asdict(self).items() if value not in ([], {})}

    def as_text(self) -> str:
        """Return the tables that are printed otherwise."""
        labels = {score.metric: _LABELS.get(score.metric, score.metric) for score in self.scores}
        cells = self.comparisons or self.scores
        if len(self.systems) == 1:
            rows = [[labels[score.metric], f"{score.score:.2f}", score.signature] for score in self.scores]
            lines = list(_columns(rows, numbers=(1,)))
            if details := self.scores[0].details:
                lines.insert(1, _details(**details))
        else:
            rows = [["system", *labels.values()]]
            for system in self.systems:
                rows.append([system, *(_cell(cell) for cell in cells if cell.system == system)])
            lines = list(_columns(rows, numbers=range(1, len(labels) + 1)))
            if self.comparisons:
                lines += [
                    "p: probability of a difference from the first system this large, if both are equally good;"
                    f" *: below {_SIGNIFICANT}.",
                    "±: half the width of the 95% confidence interval.",
                ]
            signatures = {labels[cell.metric]: cell.signature for cell in cells}
            lines += ["", *_columns(list(signatures.items()))]
        if self.groups:
            columns = [f"{score.system} {labels[score.metric]}" for score in self.scores]
            rows = [["group", "lines", *(columns if len(self.systems) > 1 else labels.values())]]
            for group, count in self.groups.items():
                rows.append([group, str(count), *(f"{score.groups[group]:.2f}" for score in self.scores)])
            lines += ["", *_columns(rows, numbers=range(1, len(rows[0])))]
        return "".join(f"{line}\n" for line in lines)


def _details(precisions: Sequence[float], brevity_penalty: float, hypothesis_length: int, reference_length: int) -> str:
    """Return the parts of BLEU. A length ratio far from 1 is the usual sign of a model that repeats or leaves out."""
    shown = "/".join(f"{precision:.1f}" for precision in precisions)
    ratio = hypothesis_length / max(reference_length, 1)
    return f"      precisions {shown}  brevity penalty {brevity_penalty:.3f}  length ratio {ratio:.3f}"


def _cell(cell: Score | Comparison) -> str:
    text = f"{cell.score:.2f}"
    if isinstance(cell, Comparison):
        text += f" ± {cell.interval:.2f}" if cell.interval is not None else ""
        if cell.p_value is not None:
            text += f" (p={cell.p_value:.4f}{'*' if cell.p_value < _SIGNIFICANT else ''})"
    return text


def _columns(rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> Iterator[str]:
    """Yield the rows as lines with aligned columns; those called `numbers` are aligned on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if number in numbers else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
