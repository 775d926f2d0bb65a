"""The settings of filters, without the imports of their code, so that help is fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nmt_cli.registry import configures, option

SAMPLE = 100  # pairs written for each reason


@configures("filter", "filters", "nmt_cli.annexes.filters.filters:Filters")
@dataclass(frozen=True, kw_only=True)
class FilterConfig:
    """Filters of training pairs."""

    drop_held_out: bool = option(False, "Drop pairs with a source of the validation or test text.")
    drop_matching: tuple[str, ...] = option(
        (), "Drop pairs that match on a side. Repeat for more.", metavar="REGEX"
    )
    scripts: str | None = option(
        None, "Drop pairs in other scripts: Latn,Hani+Hira+Kana.", metavar="SOURCE,TARGET"
    )
    identify_languages: str | None = option(
        None, "Drop pairs in other languages: en,de.", metavar="SOURCE,TARGET"
    )
    min_score: float | None = option(
        None, "Drop pairs with lower --scores, per token from nmt score-targets."
    )
    scores: tuple[str, ...] = option(
        (), "A score a line, for each pair of --train. Repeat for more.", metavar="FILE"
    )
    dropped: Path | None = option(
        None, f"Write dropped pairs to a table, evenly spaced {SAMPLE} for each reason."
    )
