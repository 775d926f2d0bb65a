"""The settings of searches and constraints, and the place of each builder, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.config import flag
from nmt_cli.errors import UsageError
from nmt_cli.registry import configures, option


@configures("search", "sampling", "nmt_cli.annexes.search.sampling:sampling")
@dataclass(frozen=True)
class SamplingConfig:
    sample: bool = option(
        False, "Draw outputs at random, by their probability. --nbest N draws N for each line."
    )
    temperature: float | None = option(
        None, "Divide log-probabilities by X. [default: 1]", minimum=0.001
    )
    top_k: int | None = option(None, "Draw each token from the N most probable ones.", minimum=1)
    top_p: float | None = option(
        None,
        "Draw each token from the fewest whose probabilities sum to X.",
        minimum=0.001,
        maximum=1.0,
    )
    seed: int | None = option(None, "Seed of the random numbers. [default: 1]", minimum=0)

    def __post_init__(self) -> None:
        for name in ("temperature", "top_k", "top_p", "seed"):
            if getattr(self, name) is not None and not self.sample:
                raise UsageError(f"{flag(name)} is an option of sampling and needs --sample")


@configures("constraint", "ngrams", "nmt_cli.annexes.search.ngrams:NoRepeat")
@dataclass(frozen=True)
class NgramsConfig:
    no_repeat_ngram: int | None = option(
        None, "Never repeat a sequence of N tokens within an output.", minimum=1
    )


@configures("constraint", "prefix", "nmt_cli.annexes.search.prefixes:Prefixes")
@dataclass(frozen=True)
class PrefixConfig:
    """No flags: it is used for lines that have a prefix."""
