"""The options of `nmt report`, which its parts read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nmt_cli.decoding.options import SearchOptions
from nmt_cli.flags import device_option, import_option
from nmt_cli.registry import argument, group, option


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Write a page about runs: curves, cost, scores of outputs, examples and settings.

    Several runs are shown side by side. The page is one file, which loads nothing from the network.
    With --json, write figures and settings as JSON.
    """

    runs: tuple[Path, ...] = argument("RUN...", "Directories that were --out of `nmt train`.")
    out: Path | None = option(None, "The page to write.", metavar="PAGE.html")
    as_json: bool = option(
        False,
        "Write figures and settings as a JSON list, to --out or standard output.",
        names=("--json",),
    )
    checkpoint: str | None = option(
        None,
        "The checkpoint in each RUN that translates, such as best. [default: the newest]",
        metavar="NAME",
    )
    sentences: int = option(
        1000, "Sentences of the validation set that are translated. 0: no outputs.", minimum=0
    )
    examples: int = option(
        5, "Sentences that are shown with their attention.", minimum=0, maximum=20
    )
    robustness: bool = option(
        False,
        "Instead of a page, print scores of the validation set with its source in capitals, "
        "misspelt and so on.",
    )
    device: str = device_option()
    imports: tuple[str, ...] = import_option()
    search: SearchOptions = group("search", SearchOptions, without=("nbest",))
