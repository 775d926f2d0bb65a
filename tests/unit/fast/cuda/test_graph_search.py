"""The search of a GPU on a CPU, against the ordinary one.

Recorded operations stand in for CUDA graphs.
"""

from __future__ import annotations

import random
import sys
import types
from typing import Any

import pytest
import torch
from graph_searches import (
    WAITS,
    Again,
    Graph,
    V,
    check,
    model,
    recorded,
    requested,
    search_of,
    searched,
    sources,
)
from stepping import token_log_probabilities
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nmt_cli.annexes.later.settings import (
    AlibiAttentionConfig,
    RelativeAttentionConfig,
    RestrictedAttentionConfig,
    RotaryAttentionConfig,
)
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.constraints import AllOf
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.errors import CheckpointError
from nmt_cli.fast.cuda import checks, fixed_search
from nmt_cli.fast.cuda import graph_search as module
from nmt_cli.fast.cuda.device import Fast
from nmt_cli.fast.cuda.fixed_search import ASKED, FixedSearch
from nmt_cli.fast.cuda.graph_search import GraphSearch
from nmt_cli.interfaces import EOS, Hypothesis
from nmt_cli.layers.settings import FullAttentionConfig


class Counted(TorchDispatchMode):
    """Counts what a GPU would make the host wait for."""

    waits = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.waits += str(function).split(".")[1] in WAITS
        return function(*args, **(kwargs or {}))

    def tolist(self, tensor: Tensor) -> Any:
        self.waits += 1
        return tensor.numpy().tolist()


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    return recorded(monkeypatch)


@pytest.mark.parametrize(
    ("options", "attention"),
    [
        (SearchSettings(1), RotaryAttentionConfig()),
        (SearchSettings(4), FullAttentionConfig()),
        (SearchSettings(3, 1.0, 3, 2, exact_stopping=True), RotaryAttentionConfig()),
        (SearchSettings(2, early_termination=False), FullAttentionConfig()),
    ],
)
def test_it_finds_what_the_ordinary_search_finds(
    options: SearchSettings, attention: Any, graphs: list[Graph]
) -> None:
    """In batches of several buckets, some of which come again. Limits are short, long, and none."""
    decodable = model(attention, norm="pre" if options.beam == 4 else "post")
    numbers = random.Random(1)
    search = search_of(decodable)
    for seed, (count, longest) in enumerate(
        [(20, 9), (3, 40), (20, 20), (20, 9), (1, 31), (8, 32)]
    ):
        source = sources([numbers.randint(2, longest) for _ in range(count)], seed)
        limits = [numbers.choice([0, 6, 25, 45]) for _ in range(count)]
        check(
            searched(search, source, limits, options),
            beam_search(decodable, source, limits, options),
        )
    assert sum(graph.replays > 20 for graph in graphs) >= 2


@pytest.mark.parametrize(
    ("beam", "attention"),
    [
        (1, FullAttentionConfig()),
        (4, FullAttentionConfig()),
        (4, RotaryAttentionConfig()),
        (1, RelativeAttentionConfig()),
        (4, AlibiAttentionConfig()),
    ],
)
def test_the_ordinary_search_of_a_gpu_in_bfloat16(beam: int, attention: Any) -> None:
    """That of ensembles, for one. Its scores of tokens are near those in float32."""
    decodable = model(attention, "bfloat16")
    exact = model(attention)
    source = sources([9, 4, 6, 12])
    for row, (best, *_) in enumerate(
        beam_search(decodable, source, [20] * 4, SearchSettings(beam))
    ):
        tokens = [*best.tokens, EOS][: len(best.token_scores)]
        scores = token_log_probabilities(exact, source[row : row + 1], tokens)
        assert best.token_scores == pytest.approx(scores, abs=0.15)


@pytest.mark.parametrize("beam", [1, 3])
def test_the_batches_of_a_call_are_one_queue(beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sentences get the places of others, in searches of fewer columns and positions, too."""
    moves = list[int]()
    load = FixedSearch.load
    monkeypatch.setattr(
        FixedSearch, "load", lambda self, *others: moves.append(1) or load(self, *others)
    )
    decodable = model(RotaryAttentionConfig())
    numbers = random.Random(beam)
    search = search_of(decodable)
    batches = []
    for seed, (options, count, longest, limit) in enumerate(
        [
            (SearchSettings(beam, min_length=3, nbest=beam), 5, 70, 70),
            (SearchSettings(beam, min_length=3, nbest=beam), 20, 40, 70),
            (SearchSettings(beam, min_length=3, nbest=beam), 60, 20, 20),
            (SearchSettings(beam, early_termination=False), 9, 9, 20),
            (SearchSettings(beam, early_termination=False), 1, 9, 70),
        ]
    ):
        source = sources([longest, *[numbers.randint(2, longest) for _ in range(count - 1)]], seed)
        limits = [numbers.randint(0, limit) for _ in range(count)]
        batches.append((source, limits, options, None))
    for _ in range(2):
        for batch, outputs in zip(batches, search(requested(batches)), strict=True):
            check(outputs, beam_search(decodable, *batch))
    assert len(moves) >= 2
    assert {shape.columns for shape in search.searches} >= {32, 96}


def test_places_are_refilled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps are those that 8 places need for all tokens, and those of the last sentences."""
    steps = list[int]()
    step = FixedSearch.step
    monkeypatch.setattr(FixedSearch, "step", lambda self: steps.append(1) or step(self))
    monkeypatch.setattr(fixed_search, "captured", Again)
    options = SearchSettings(2, min_length=40, early_termination=False)
    numbers = random.Random(1)
    limits = [[numbers.choice([5, 10, 40]) for _ in range(8)] for _ in range(10)]
    batches = [(sources([5] * 8), few, options, None) for few in limits]
    list(search_of(model())(requested(batches)))
    waits = 80 * 2 * ASKED  # at most, from the end of a sentence to the next one
    tokens = sum(limit + 1 for few in limits for limit in few)
    assert tokens / 8 < len(steps) <= (tokens + waits) / 8 + 41


def test_the_host_waits_once_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    search, options = search_of(model()), SearchSettings(early_termination=False)
    batches = list(requested([(sources([9, 8, 7] * 8), [49, 20, 10] * 8, options, None)] * 3))
    questions = list[int]()
    run = FixedSearch.run
    monkeypatch.setattr(
        FixedSearch, "run", lambda self, length: questions.append(1) or run(self, length)
    )
    for _ in range(3):  # graphs are made once
        expected = list(search(batches))
        questions.clear()
    with Counted() as counted:
        monkeypatch.setattr(Tensor, "tolist", lambda tensor: counted.tolist(tensor))
        assert list(search(batches)) == expected
    assert len(questions) > 40
    # An answer is read twice, which waits once. The others encode a batch and read its outputs.
    assert counted.waits <= 2 * len(questions) + 8 * len(batches)


def test_what_earlier_sentences_left_is_not_read() -> None:
    decodable, options = model(), SearchSettings(4, nbest=4)
    search = search_of(decodable)
    batch = (sources([5, 3]), [0, 3], options)
    searched(search, *batch)
    (fixed,) = search.searches.values()
    left = [fixed.sentences.finished.lengths, fixed.cut_lengths, fixed.last, *fixed.history.all()]
    with torch.inference_mode():
        for tensor in [*left, *fixed.state.source, *fixed.state.target]:
            tensor.fill_(3 if tensor is fixed.history.rows else 99)
    check(searched(search, *batch), beam_search(decodable, *batch))


def test_a_caller_may_search_while_it_reads_results() -> None:
    """And leave the rest unread."""
    decodable, options = model(), SearchSettings(2)
    search = search_of(decodable)
    batches = [(sources([9 - seed] * 9, seed), [20] * 9, options, None) for seed in range(3)]
    expected = [beam_search(decodable, *batch) for batch in batches]
    for outer, first in zip(search(requested(batches)), expected, strict=True):
        check(outer, first)
        check(next(search(requested(batches))), expected[0])


def test_kernels_that_do_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ordinary lines take their place, after one warning."""
    cpu = torch.device("cpu")
    name = "nmt_cli.fast.cuda.step_kernels"
    monkeypatch.setitem(sys.modules, name, None)
    checks.kernels_of_step.cache_clear()
    searched(search_of(model()), sources([5]), [3], SearchSettings())
    warning = capsys.readouterr().err
    assert warning.startswith("warning: decoding takes longer, without a kernel: ModuleNotFound")
    assert warning.count("\n") == 1
    kernels = types.SimpleNamespace(attend=None, best_tokens=lambda *_: 1 / 0)
    monkeypatch.setitem(sys.modules, name, kernels)
    checks.kernels_of_step.cache_clear()
    assert checks.kernels_of_step(cpu, torch.float32) is None
    assert "without a kernel: ZeroDivisionError: division by zero" in capsys.readouterr().err
    checks.kernels_of_step.cache_clear()


def test_nan_is_an_error() -> None:
    decodable = model()
    decodable._output = lambda x: torch.full((len(x), V), torch.nan)
    for limit in (5, 40):
        with pytest.raises(CheckpointError, match="not numbers"):
            searched(search_of(decodable), sources([5, 4]), [limit, 2], SearchSettings())


def test_where_it_is_used() -> None:
    search, source = search_of(model()), sources([5])
    search.otherwise = list
    options, constraint = SearchSettings(), AllOf([])
    batches = [
        (source, [100], options, None),
        (source, [5000], options, None),
        (source, [5], options, constraint),
        (source, [5], options, None),
    ]
    requests = list(requested(batches))
    first, *others, last = search(requests)
    assert isinstance(first[0][0], Hypothesis)
    assert others == requests[1:3]
    assert isinstance(last[0][0], Hypothesis)
    device = Fast(torch.device("cpu"))
    restricted = model(RestrictedAttentionConfig(neighbourhood=2))
    assert not isinstance(device.search(restricted, beam_search), GraphSearch)


def test_the_oldest_tensors_go_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 1)
    search = search_of(model())
    for beam in (2, 4):
        searched(search, sources([5]), [3], SearchSettings(beam))
        assert [shape.options.beam for shape in search.searches] == [beam]


def test_memory_that_runs_out_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    search = search_of(model())
    searched(search, sources([5]), [3], SearchSettings())
    monkeypatch.setattr(
        FixedSearch, "run", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("full"))
    )
    with pytest.raises(torch.OutOfMemoryError):
        searched(search, sources([5]), [3], SearchSettings(2))
    assert search.searches == {}


@pytest.mark.parametrize("limit", [126, 127])
def test_a_sentence_past_its_end_moves_to_fewer_positions(limit: int) -> None:
    """The host does not know yet that the shorter ones have reached their limit."""
    decodable = model()
    options = SearchSettings(beam=2, min_length=1000)
    batches = []
    for seed, limits in enumerate(([limit], [63] * 12, [60] * 8)):
        batches.append((sources([6] * len(limits), seed), limits, options, None))
    expected = [beam_search(decodable, *batch) for batch in batches]
    for outputs, of_batch in zip(search_of(decodable)(requested(batches)), expected, strict=True):
        check(outputs, of_batch)
