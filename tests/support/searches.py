"""The hypotheses of each search, for tests of constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from nmt_cli.annexes.search import sampling as sampling_module
from nmt_cli.annexes.search.settings import SamplingConfig
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.interfaces import Hypothesis

SOURCES = [[4, 5], [6], [4, 4, 5, 6, 5], [5, 6, 4], [6, 6]]
LINES = range(1, 6)
searches = st.sampled_from(["greedy", "beam", "samples"])


def outputs(
    how: str, model: Any, source: Any, limits: list[int], constraint: Any, **options: Any
) -> list[Any]:
    """The hypotheses of each sentence, by any of the searches."""
    if how == "samples":
        search = SearchSettings(nbest=3, **options)
        return sample(model, source, limits, search, SamplingConfig(sample=True), LINES, constraint)
    width = 1 if how == "greedy" else 4
    return beam_search(
        model, source, limits, SearchSettings(width, nbest=width, **options), constraint
    )


def sample(
    model: Any,
    source: torch.Tensor,
    limits: Sequence[int],
    search: SearchSettings,
    sampling: SamplingConfig,
    lines: Sequence[int],
    constraint: Any = None,
) -> list[list[Hypothesis]]:
    """The samples of sentences with these limits and numbers of lines."""
    requests = [Request([], limit, number=line) for limit, line in zip(limits, lines, strict=True)]
    return sampling_module.sample(sampling, model, source, requests, search, constraint)


def nothing(rows: int = 5) -> torch.Tensor:
    return torch.zeros((rows, 0), dtype=torch.long)


def ngrams(tokens: list[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
