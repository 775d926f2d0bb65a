from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import nmt_cli
from nmt_cli.annexes.search import scoring
from nmt_cli.annexes.search.scoring import token_log_probabilities
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import CheckpointError, DataError, NmtError, UsageError
from nmt_cli.interfaces import BOS, EOS, UNK

CPU = torch.device("cpu")
PAIRS = [
    ([4, 5, 6], [7, 8]),
    ([], [9]),
    ([10], []),
    ([], []),
    ([4] * 9, [UNK, 12] * 6),
    ([11], [5]),
]
Pairs = Sequence[tuple[list[int], list[int]]]


@pytest.fixture(scope="module")
def translators(
    make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> list[Translator]:
    """Of two models, and of both together."""
    folder = tmp_path_factory.mktemp("scoring")
    paths = [make_checkpoint(folder / str(seed), seed=seed) for seed in (3, 4)]
    return [nmt_cli.load(chosen, device="cpu") for chosen in (paths[:1], paths[1:], paths)]


def scored(models: Sequence[Any], pairs: Pairs, batch_tokens: int = 4096) -> list[list[float]]:
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    return token_log_probabilities(models, sources, targets, CPU, batch_tokens)


def independently(model: Any, source: list[int], target: list[int]) -> Tensor:
    with torch.inference_mode():
        logits = model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))
    return logits[0].double().softmax(dim=1)[range(len(target) + 1), [*target, EOS]].log()


def flat(scores: list[list[float]]) -> list[float]:
    return [value for line_scores in scores for value in line_scores]


@pytest.mark.parametrize("biased", [False, True])
def test_scores_are_the_log_probabilities_of_the_model(
    translators: list[Translator], biased: bool
) -> None:
    model = copy.deepcopy(translators[0].engine.models[0])
    if biased:
        model.output_bias = nn.Parameter(torch.linspace(-2, 2, model.vocabulary_size))
    all_scores = scored([model], PAIRS)
    assert [len(scores) for scores in all_scores] == [len(target) + 1 for _, target in PAIRS]
    for scores, pair in zip(all_scores, PAIRS, strict=True):
        assert scores == pytest.approx(independently(model, *pair).tolist(), abs=1e-5)


def test_an_ensemble_averages_the_probability_of_each_token(translators: list[Translator]) -> None:
    both = translators[2].engine.models
    assert len(both) == 2
    for scores, pair in zip(scored(both, PAIRS), PAIRS, strict=True):
        mean = torch.stack([independently(model, *pair).exp() for model in both]).mean(dim=0).log()
        assert scores == pytest.approx(mean.tolist(), abs=1e-5)


IDS = st.lists(st.integers(EOS + 1, 12) | st.just(UNK), max_size=9)


@settings(max_examples=30)
@given(pairs=st.lists(st.tuples(IDS, IDS), max_size=12), batch_tokens=st.integers(1, 60))
def test_batches_change_nothing(
    translators: list[Translator], pairs: Pairs, batch_tokens: int
) -> None:
    alone = [scored(translators[0].engine.models, [pair])[0] for pair in pairs]
    together = scored(translators[0].engine.models, pairs, batch_tokens)
    assert [len(scores) for scores in together] == [len(scores) for scores in alone]
    assert flat(together) == pytest.approx(flat(alone), abs=1e-5)


@pytest.mark.parametrize("which", [0, 2])
def test_the_outputs_of_a_greedy_search_have_the_scores_that_the_search_gave(
    translators: list[Translator], which: int
) -> None:
    lines = ["abc", "hgfedcba", "a", "bad", "ace" * 5]
    searched = list(
        translators[which].translate_detailed(lines, beam=1, alpha=0.0, max_length_offset=2)
    )
    outputs = [translation.outputs[0] for translation in searched]
    encode = translators[which].task.encode_source
    pairs = [(encode(line), list(output.ids)) for line, output in zip(lines, outputs, strict=True)]
    for scores, output in zip(
        scored(translators[which].engine.models, pairs), outputs, strict=True
    ):
        assert sum(output.token_scores) == pytest.approx(output.score, abs=1e-4)
        assert scores[: len(output.token_scores)] == pytest.approx(output.token_scores, abs=1e-4)


def test_rows_and_sentences_in_parts_give_the_same(
    translators: list[Translator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few logits exist at a time, and a batch that does not fit in memory is halved."""
    (model,) = translators[0].engine.models
    expected, decoder_output = scored([model], PAIRS), model.decoder_output
    monkeypatch.setattr(scoring, "ROWS", 4)
    for largest in (2, 0):

        def small(source: Tensor, target_in: Tensor, largest: int = largest) -> Tensor:
            if len(source) > largest:
                raise torch.OutOfMemoryError("too much")
            return decoder_output(source, target_in)

        monkeypatch.setattr(model, "decoder_output", small)
        if largest:
            assert flat(scored([model], PAIRS)) == pytest.approx(flat(expected), abs=1e-5)
    with pytest.raises(NmtError, match="source of 9 and a target of 12 tokens"):
        scored([model], PAIRS[4:5])


def test_probabilities_that_are_not_numbers_are_an_error(
    make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    (model,) = nmt_cli.load([make_checkpoint(tmp_path / "nan")], device="cpu").engine.models
    with torch.no_grad():
        model.output_weight[7] = math.nan
    with pytest.raises(CheckpointError, match="NaN"):
        scored([model], [([4], [5])])


def test_lines_are_scored_in_order_with_their_tokens(translators: list[Translator]) -> None:
    translator = translators[0]
    seen: list[str] = []
    sources, targets = ["abc", "", "de", "ab"], ["hg", "a", " ", "ax\ud800"]
    scores = translator.score_targets(sources, targets, seen.extend)
    assert [(line_scores.source, line_scores.target) for line_scores in scores] == [
        ("abc", "hg"),
        ("", "a"),
        ("de", " "),
        ("ab", "ax?"),
    ]
    assert sorted(seen) == sorted(sources)
    assert [len(line_scores.token_scores) - len(line_scores.tokens) for line_scores in scores] == [
        1
    ] * 4
    assert "".join(scores[0].tokens).replace("\u2581", "") == "hg"
    assert scores[2].tokens == []
    assert "<unk>" in scores[3].tokens
    for line_scores in scores:
        assert line_scores.score == pytest.approx(sum(line_scores.token_scores))
        ids = (
            translator.task.encode_source(line_scores.source),
            translator.task.encode_target(line_scores.target.strip()),
        )
        assert line_scores.token_scores == pytest.approx(
            independently(translator.engine.models[0], *ids).tolist(), abs=1e-5
        )


def test_long_lines_are_cut_on_either_side(translators: list[Translator]) -> None:
    limited = replace(translators[0], options=replace(translators[0].options, max_source_length=3))
    whole, long_source, long_target = limited.score_targets(
        ["ab", "abcdef", "ab"], ["ab", "ab", "abcdef"]
    )
    assert [
        (scored.source_truncated, scored.target_truncated)
        for scored in (whole, long_source, long_target)
    ] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert long_source.token_scores == pytest.approx(whole.token_scores, abs=1e-5)
    # The end of the sentence was not reached.
    assert len(long_target.token_scores) == len(long_target.tokens) == 3
    assert long_target.token_scores == pytest.approx(whole.token_scores[:3], abs=1e-5)


def test_what_cannot_be_scored_is_named(
    translators: list[Translator], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong: list[Any] = [
        (["a"], []),
        (None, ["a"]),
        (["a"], iter([])),
        ("a", ["a"]),
        (["a"], "b"),
        (["a"], [3]),
        ([b"a"], ["a"]),
    ]
    for sources, targets in wrong:
        with pytest.raises(UsageError):
            translators[0].score_targets(sources, targets)
    assert translators[0].score_targets([], iter([])) == []

    def refuse(line: str) -> list[int]:
        raise DataError("unbalanced")

    monkeypatch.setattr(translators[0].task, "encode_target", refuse)
    with pytest.raises(DataError, match=r"^target 2: unbalanced"):
        translators[0].score_targets(["a", "b"], [" ", "(S"])
