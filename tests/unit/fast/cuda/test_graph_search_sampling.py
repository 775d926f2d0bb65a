"""Sampling by the search of a GPU, on a CPU, against the ordinary one."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import pytest
import torch
from graph_searches import Again, model, recorded, requested, search_of, sources

from nmt_cli.annexes.later.settings import RotaryAttentionConfig
from nmt_cli.annexes.search import sampling as module
from nmt_cli.annexes.search.sampling import sampling
from nmt_cli.annexes.search.settings import SamplingConfig
from nmt_cli.decoding.constraints import AllOf
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchOptions, SearchSettings
from nmt_cli.errors import CheckpointError
from nmt_cli.fast.cuda import fixed_search, graph_search
from nmt_cli.fast.cuda.fixed_search import FixedSearch
from nmt_cli.interfaces import EOS, Hypothesis

CASES = int(os.environ.get("SEARCHES", "10"))


def settings_of(config: SamplingConfig, **options: Any) -> SearchSettings:
    return sampling(config, settings=SearchSettings(**options), options=SearchOptions())


def sampled(decodable: Any, source: Any, requests: Any, options: Any, *_: Any) -> Any:
    return options.run(decodable, source, requests, options)


def fixed_only(search: Any) -> Any:
    """The search, which must not need another one."""
    search.otherwise = None
    return search


def equal(samples: list[Hypothesis], expected: list[Hypothesis]) -> int:
    """How many are equal. A rounding error may decide about a draw, so not all need to be."""
    assert len(samples) == len(expected)
    count = 0
    for mine, its in zip(samples, expected, strict=True):
        if mine.tokens == its.tokens:
            count += 1
            assert mine.score == pytest.approx(its.score, abs=1e-4)
            assert mine.token_scores == pytest.approx(its.token_scores, abs=1e-4)
    return count


@pytest.fixture(autouse=True)
def _graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_search, "captured", Again)


@pytest.fixture(scope="module")
def models() -> list[Any]:
    return [model(), model(RotaryAttentionConfig(), norm="pre")]


def test_it_draws_what_the_ordinary_sampling_draws(
    models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places are refilled, and searches change their shapes. Limits are short, long, and none."""
    monkeypatch.setattr(graph_search, "FEWEST", 2)
    searches = [fixed_only(search_of(decodable)) for decodable in models]
    total = same = 0
    for case in range(CASES):
        numbers = random.Random(case)
        config = SamplingConfig(
            sample=True,
            temperature=numbers.choice([None, 0.5, 2.0]),
            top_k=numbers.choice([None, None, 1, 5]),
            seed=numbers.choice([None, 7]),
        )
        batches = []
        for _ in range(numbers.randint(1, 3)):
            options = settings_of(
                config,
                nbest=numbers.choice([1, 1, 2, 5]),
                alpha=numbers.choice([0.0, 0.6]),
                min_length=numbers.choice([0, 0, 3]),
                unknown=numbers.random() < 0.5,
                never_generated=numbers.choice([0, 2]),
            )
            for seed in range(numbers.randint(1, 3)):
                lengths = [numbers.randint(2, numbers.choice([9, 40])) for _ in range(5)]
                lengths = lengths[: numbers.randint(1, 5)]
                longest = numbers.choice([0, 4, 12, 70])
                limits = [numbers.randint(0, longest) for _ in lengths]
                batches.append((sources(lengths, seed), limits, options, None))
        batches = list(requested(batches, numbers.choice([1, 2**33])))
        number = case % len(models)
        outputs = list(chain(*chain(*searches[number](batches))))
        expected = list(chain(*chain(*(sampled(models[number], *batch) for batch in batches))))
        total += len(outputs)
        same += equal(outputs, expected)
    assert same >= 0.998 * total


@pytest.mark.parametrize("top_k", [None, 3])
def test_recorded_steps(
    top_k: int | None, models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps as CUDA graphs, by several threads."""
    graphs = recorded(monkeypatch)
    search = fixed_only(search_of(models[0]))
    options = settings_of(SamplingConfig(sample=True, top_k=top_k), nbest=2)
    limits = [random.Random(1).randint(20, 40) for _ in range(12)]
    parts = [
        [*requested([(sources([9] * 12, part), limits, options, None)], 1 + 12 * part)]
        for part in range(3)
    ]
    with ThreadPoolExecutor(3) as threads:
        outputs = list(threads.map(lambda batches: list(chain(*search(batches))), parts))
    expected = [list(chain(*(sampled(models[0], *batch) for batch in part))) for part in parts]
    assert equal([*chain(*chain(*outputs))], [*chain(*chain(*expected))]) >= 71
    assert sum(graph.replays for graph in graphs) > 20


def test_other_seeds_have_the_same_graphs(models: list[Any]) -> None:
    search = fixed_only(search_of(models[0]))
    results = []
    for seed in (1, 2):
        options = settings_of(SamplingConfig(sample=True, seed=seed), nbest=2)
        (outputs,) = search(requested([(sources([9]), [9], options, None)]))
        results.append([sample.tokens for sample in outputs[0]])
    assert results[0] != results[1]
    assert len(search.searches) == 1


def test_where_it_is_used(models: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    search, source = search_of(models[0]), sources([5])
    search.otherwise = list
    monkeypatch.setattr(module, "AT_A_TIME", 4)
    plain = settings_of(SamplingConfig(sample=True), nbest=4)
    nucleus = settings_of(SamplingConfig(sample=True, top_p=0.5))
    many = settings_of(SamplingConfig(sample=True), nbest=5)
    others = [
        (source, [Request([], 5)], nucleus, None),
        (source, [Request([], 5)], many, None),
        (source, [Request([], 5)], plain, AllOf([])),
        (source, [Request([], 5000)], plain, None),
    ]
    first, *unchanged = search([(source, [Request([], 5)], plain, None), *others])
    assert isinstance(first[0][0], Hypothesis)
    assert unchanged == others


@pytest.mark.parametrize("limit", [2, 40])
def test_nan_is_an_error(limit: int) -> None:
    """In any of the samples, also in a token that is never drawn."""
    decodable = model()
    options = settings_of(SamplingConfig(sample=True), nbest=3, never_generated=2)
    logits = decodable._output

    def broken(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = logits(x)
        result[-1, -1] = torch.nan
        return result

    decodable._output = broken
    with pytest.raises(CheckpointError, match="not numbers"):
        list(search_of(decodable)(requested([(sources([5, 4]), [limit, 2], options, None)])))


def test_a_step_does_not_wait(models: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it reorder the caches: each sample continues itself."""
    recorded(monkeypatch)  # which refuses what waits
    monkeypatch.setattr(fixed_search.FixedState, "select", None)
    options = settings_of(SamplingConfig(sample=True, temperature=2.0), nbest=3, min_length=12)
    (outputs,) = fixed_only(search_of(models[0]))(
        requested([(sources([5, 4]), [15, 20], options, None)])
    )
    assert issubclass(fixed_search.fixed(module.Sampler), FixedSearch)
    assert min(len(sample.tokens) for sample in chain(*outputs)) >= 12
    assert EOS not in chain(*(sample.tokens for sample in chain(*outputs)))
