from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.constraints import FREE, AllOf, BeginsWith, NoRepeatedNgrams
from nmt_cli.decoding.options import SamplingOptions, SearchSettings
from nmt_cli.decoding.sampling import sample
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, Hypothesis, Prefix

SOURCES = [[4, 5], [6], [4, 4, 5, 6, 5], [5, 6, 4], [6, 6]]
LINES = range(1, 6)
seeds = st.integers(0, 10**6)
searches = st.sampled_from(["greedy", "beam", "samples"])


def outputs(how: str, model: Any, source: Any, limits: list[int], constraint: Any, **options: Any) -> list[Any]:
    """The hypotheses of each sentence, by any of the searches."""
    if how == "samples":
        search = SearchSettings(nbest=3, **options)
        return sample(model, source, limits, search, SamplingOptions(sample=True), LINES, constraint)
    width = 1 if how == "greedy" else 4
    return beam_search(model, source, limits, SearchSettings(width, nbest=width, **options), constraint)


def nothing(rows: int = 5) -> torch.Tensor:
    return torch.zeros((rows, 0), dtype=torch.long)


def ngrams(tokens: list[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


@settings(max_examples=60)
@given(seed=seeds, n=st.integers(1, 4), how=searches, limit=st.integers(0, 20), sharpness=st.sampled_from([1.0, 5.0]))
def test_no_output_has_an_ngram_twice(
    toy: Callable[..., Any], padded: Any, seed: int, n: int, how: str, limit: int, sharpness: float
) -> None:
    model = toy(8, seed, sharpness)
    for found in outputs(how, model, padded(SOURCES), [limit] * 5, NoRepeatedNgrams(n, nothing())):
        for h in found:
            assert len(set(ngrams(h.tokens, n))) == len(ngrams(h.tokens, n))


@settings(max_examples=60)
@given(seed=seeds, n=st.integers(1, 4), sharpness=st.sampled_from([1.0, 5.0]))
def test_a_greedy_output_without_repetition_does_not_change(
    toy: Callable[..., Any], padded: Any, seed: int, n: int, sharpness: float
) -> None:
    model, limits = toy(12, seed, sharpness), [8] * 5
    free = outputs("greedy", model, padded(SOURCES), limits, None)
    held = outputs("greedy", model, padded(SOURCES), limits, NoRepeatedNgrams(n, nothing()))
    for (left,), (right,) in zip(free, held, strict=True):
        if len(set(ngrams(left.tokens, n))) == len(ngrams(left.tokens, n)):
            assert left.tokens == right.tokens
        else:
            assert left.tokens != right.tokens


@given(
    n=st.integers(1, 4),
    rows=st.lists(st.lists(st.integers(0, 4), min_size=7, max_size=7), min_size=1, max_size=6),
    length=st.integers(0, 7),
)
def test_exactly_the_tokens_that_repeat_an_ngram_are_forbidden(n: int, rows: list[list[int]], length: int) -> None:
    rows = [row[:length] for row in rows]
    scores = torch.full((len(rows), 5), -1.5)
    tokens = torch.tensor(rows, dtype=torch.long).view(len(rows), length)
    NoRepeatedNgrams(n, tokens).restrict(scores)
    for row, found in zip(rows, scores.tolist(), strict=True):
        new = [ngrams([*row, token], n)[-1:] for token in range(5)]
        assert found == [-torch.inf if set(gram) & set(ngrams(row, n)) else -1.5 for gram in new]


def spelled(rest: str) -> Mapping[int, str]:
    """A vocabulary of letters: the id of the n-th is 3 + n; 8 is `ab`."""
    if not rest:
        return {}
    letter = {EOS + 1 + "abcd".index(rest[0]): rest[1:]}
    return letter | {8: rest[2:]} if "ab".startswith(rest[:2]) else letter


prefixes = st.lists(
    st.builds(Prefix, st.lists(st.integers(4, 8), max_size=5), st.text("abcd", max_size=3)), min_size=5, max_size=5
)


def text_of(tokens: list[int]) -> str:
    return "".join("ab" if token == 8 else "abcd"[token - EOS - 1] for token in tokens)


@settings(max_examples=80)
@given(seed=seeds, how=searches, given_prefixes=prefixes, unrepeated=st.booleans())
def test_every_output_begins_with_its_prefix(
    toy: Callable[..., Any], padded: Any, seed: int, how: str, given_prefixes: list[Prefix], unrepeated: bool
) -> None:
    then = AllOf([NoRepeatedNgrams(2, nothing())] if unrepeated else [])
    constraint = BeginsWith(given_prefixes, spelled, then)
    limits = [len(ids) + len(rest) + 2 for ids, rest in given_prefixes]
    results = outputs(how, toy(9, seed), padded(SOURCES), limits, constraint)
    for prefix, found in zip(given_prefixes, results, strict=True):
        assert found
        for h in found:
            size = len(prefix.ids)
            assert h.tokens[:size] == prefix.ids
            assert text_of(h.tokens[size:]).startswith(prefix.rest)
            assert not {PAD, BOS, EOS, UNK} & set(h.tokens)
            own = ngrams(h.tokens, 2)
            if unrepeated and not prefix.rest:
                after = own[max(size - 1, 0) :]
                assert all(own.count(gram) == 1 for gram in after)


@settings(max_examples=30)
@given(seed=seeds)
def test_the_beginning_of_the_output_itself_as_prefix_changes_nothing(
    toy: Callable[..., Any], padded: Any, seed: int
) -> None:
    model, limits = toy(9, seed, 1.0), [8] * 5
    free = outputs("greedy", model, padded(SOURCES), limits, None)
    half = BeginsWith([Prefix(h.tokens[: len(h.tokens) // 2], "") for (h,) in free], spelled, AllOf([]))
    assert outputs("greedy", model, padded(SOURCES), limits, half) == free


def test_the_unknown_word_is_forced_but_not_chosen(toy: Callable[..., Any], padded: Any) -> None:
    given_prefixes = [Prefix([UNK, 4, UNK], ""), *[FREE] * 4]
    for how in ("greedy", "beam", "samples"):
        for seed in range(20):
            constraint = BeginsWith(given_prefixes, spelled, AllOf([]), unknown=False)
            model, source = toy(6, seed, 0.5), padded([[4]] * 5)
            results = outputs(how, model, source, [6] * 5, constraint, unknown=True)
            everything: list[Hypothesis] = [h for found in results for h in found]
            assert all(h.tokens[:3] == [UNK, 4, UNK] for h in results[0])
            assert sum(h.tokens.count(UNK) for h in everything) == 2 * len(results[0])


def test_a_prefix_may_fill_the_limit(toy: Callable[..., Any], padded: Any) -> None:
    constraint = BeginsWith([Prefix([4, 5, 6], "")], spelled, AllOf([]))
    (found,) = beam_search(toy(9, 1), padded([[4]]), [3], SearchSettings(beam=2), constraint)
    assert found[0].tokens == [4, 5, 6]
