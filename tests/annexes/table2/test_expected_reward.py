"""The expected reward: samples, gradient and mode, with models whose outputs can be enumerated."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from table2_models import built
from torch import Tensor, nn

from nmt_cli.annexes.table2 import expected_reward
from nmt_cli.annexes.table2.expected_reward import (
    ExpectedReward,
    ExpectedRewardConfig,
    draw,
    gleu,
    ngrams,
    rewards_of,
    with_targets,
    without_dropout,
)
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.criteria.settings import LabelSmoothingConfig
from nmt_cli.data.batching import collate
from nmt_cli.device import Plain
from nmt_cli.interfaces import BOS, EOS, PAD, UNK, Batch

SYMBOLS = [UNK, 4, 5]
NLTK = [
    ([4, 5], [5, 4], 0.6666666666666666),
    ([4], [4, 5, 6], 0.16666666666666666),
    ([7, 8], [4, 5, 6], 0.0),
    ([4, 4, 5, 4, 4, 4, 4, 5, 5, 4], [4, 4, 5, 4, 4, 4, 4, 5, 5, 4], 1.0),
    ([6, 5, 5, 6, 5, 5, 6, 4, 6], [6, 5, 5, 6, 5, 5, 6, 4, 4, 6], 0.8235294117647058),
    ([4, 6, 5, 4, 4, 5, 4], [4, 6, 4, 5, 4, 4, 5, 4], 0.6538461538461539),
]
"""Output, target, and the sentence_gleu of nltk.translate.gleu_score (NLTK 3.10.4)."""


def transformer(dropout: float = 0.0) -> Any:
    """A tiny model of 6 ids with distinct probabilities."""
    fields = {
        "num_layers": 1,
        "d_model": 8,
        "d_ff": 8,
        "num_heads": 2,
        "dropout": dropout,
        "output_bias": True,
    }
    model = built("transformer", vocabulary=6, **fields)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def criterion(samples: int = 2, weight: float = 0.0, offset: int = 2) -> ExpectedReward:
    return ExpectedReward(
        ExpectedRewardConfig(samples=samples, likelihood_weight=weight, max_length_offset=offset)
    )


def batch_of(*pairs: tuple[list[int], list[int]]) -> Batch:
    sources, targets = ([np.array(pair[side]) for pair in pairs] for side in (0, 1))
    return collate(sources, targets)


def gradient(loss: Tensor, model: nn.Module) -> Tensor:
    return torch.cat(
        [part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))]
    )


def outcomes(limit: int) -> list[list[int]]:
    """Every output of at most `limit` tokens: with EOS, or cut."""
    ended = [[*ids, EOS] for length in range(limit) for ids in product(SYMBOLS, repeat=length)]
    return ended + [list(ids) for ids in product(SYMBOLS, repeat=limit)]


def probabilities(model: Any, source: list[int], outputs: list[list[int]]) -> Tensor:
    """P(Y | X) of each output by the full pass, where padding and BOS have no probability."""
    values = []
    for output in outputs:
        logits = model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *output[:-1]]]))[0]
        logits = logits.index_fill(1, torch.tensor([PAD, BOS]), -torch.inf)
        values.append(logits.log_softmax(1)[range(len(output)), output].sum())
    return torch.stack(values).exp()


def test_its_gradient_is_that_of_the_expected_reward() -> None:
    """The mean over many samples, against the sum over all outputs."""
    samples, B = 3, 4000
    model, pair = transformer(), ([4], [4, 5])
    outputs = outcomes(3)
    p = probabilities(model, pair[0], outputs)
    assert p.sum().item() == pytest.approx(1)
    padded = torch.tensor([[*output, *[PAD] * (3 - len(output))] for output in outputs])
    rewards = rewards_of(padded[None], torch.tensor([[*pair[1], EOS]]))[0]
    expected = -gradient((p * rewards).sum(), model)
    torch.manual_seed(0)
    loss = criterion(samples)(model, batch_of(*[pair] * B))
    assert -loss.total.item() / B == pytest.approx((p * rewards).sum().item(), abs=0.02)
    actual = gradient(loss.total / B, model)
    assert (actual - expected).norm() < 0.15 * expected.norm()


def test_the_likelihood_has_its_weight() -> None:
    model, batch = transformer(), batch_of(([4], [4, 5]), ([5, 4], [5]))
    gradients, totals = [], []
    for weight in (0.0, 0.5):
        torch.manual_seed(1)
        loss = criterion(weight=weight)(model, batch)
        gradients.append(gradient(loss.total, model))
        totals.append(loss.total.item())
    likelihood = LabelSmoothedCrossEntropy(LabelSmoothingConfig(label_smoothing=0.0))(model, batch)
    assert totals[1] - totals[0] == pytest.approx(0.5 * likelihood.total.item())
    torch.testing.assert_close(gradients[1] - gradients[0], 0.5 * gradient(likelihood.total, model))
    assert loss.nll.item() == likelihood.nll.item()


def test_probabilities_of_padded_samples_are_those_of_the_full_pass() -> None:
    model, source = transformer(), [5, 4]
    outputs = [[4, 5, UNK, EOS], [EOS], [5, 5, 4, 4, 4], [4, EOS]]
    padded = torch.tensor([[*output, *[PAD] * (6 - len(output))] for output in outputs])
    batch = with_targets(batch_of(*[(source, [4])] * 4), padded)
    assert batch.num_tokens == 4 + 1 + 5 + 2
    torch.testing.assert_close(
        criterion().log_probabilities(model, batch).exp(), probabilities(model, source, outputs)
    )


def test_samples_are_a_batch_like_any_other() -> None:
    """What the corpus would give for the same sentences."""
    expected = batch_of(([4, 5], [4, 4, 5]), ([5], []), ([4], [5]))
    other = batch_of(([4, 5], [5]), ([5], [5]), ([4], [4]))
    batch = with_targets(
        other,
        torch.tensor([[4, 4, 5, EOS, PAD], [EOS, PAD, PAD, PAD, PAD], [5, EOS, PAD, PAD, PAD]]),
    )
    assert torch.equal(batch.target_in, expected.target_in)
    assert torch.equal(batch.target_out, expected.target_out)
    assert batch.num_tokens == expected.num_tokens


class Script:
    """A `Decodable` that says a given sentence for each first source id, and checks its rows."""

    vocabulary_size = 300

    def __init__(self, sentences: dict[int, list[int]]) -> None:
        self.sentences = sentences

    def start(self, source: Tensor) -> Any:
        return ScriptState(source[:, 0], torch.zeros(len(source), dtype=torch.long))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        scores = torch.full((len(tokens), self.vocabulary_size), -torch.inf)
        for row, (first, place) in enumerate(
            zip(state.first.tolist(), state.place.tolist(), strict=True)
        ):
            said = self.sentences[first]
            assert place == 0 or tokens[row] == (said[place - 1] if place <= len(said) else PAD)
            scores[row, said[min(place, len(said) - 1)]] = 0.0
        scores[:, PAD] = 0.0  # never drawn
        return scores, ScriptState(state.first, state.place + 1)


class ScriptState:
    def __init__(self, first: Tensor, place: Tensor) -> None:
        self.first, self.place = first, place

    def select(self, rows: Tensor) -> ScriptState:
        return ScriptState(self.first[rows.flatten()], self.place[rows.flatten()])


def test_samples_end_and_are_cut() -> None:
    """Sentences leave in any order. The tokens are in all blocks of the vocabulary."""
    sentences = {7: [299, 130, EOS], 8: [EOS], 9: [11, 12, 13, 14, 15, EOS], 10: [5, 6, 7, EOS]}
    source = torch.tensor([[9, EOS], [7, EOS], [8, EOS], [10, EOS]])
    samples = draw(Script(sentences), source, torch.tensor([4, 9, 9, 9]), 3)
    expected = [[11, 12, 13, 14], [299, 130, EOS, PAD], [EOS, PAD, PAD, PAD], [5, 6, 7, EOS]]
    assert torch.equal(samples, torch.tensor(expected)[:, None].expand(4, 3, 4))


def test_nothing_is_dropped_out() -> None:
    """Not in the backward pass either. Modules keep their mode."""
    modes = []
    for dropout in (0.0, 0.5):
        model = transformer(dropout)
        model.encoder[0].eval()
        before = [module.training for module in model.modules()]
        torch.manual_seed(2)
        loss = criterion(weight=0.1)(model, batch_of(([4], [4, 5]), ([5, 4], [5])))
        modes.append(gradient(loss.total, model))
        assert [module.training for module in model.modules()] == before
    torch.testing.assert_close(modes[0], modes[1])


def test_recurrent_layers_stay_in_training_mode() -> None:
    """Without it cuDNN refuses to compute their gradient."""
    model = nn.Sequential(nn.LSTM(2, 2), nn.Dropout())
    with without_dropout(model):
        assert (model[0].training, model[1].training) == (True, False)
    assert model[1].training


def test_evaluation_draws_nothing() -> None:
    model, batch = transformer(0.5).eval(), batch_of(([4], [4, 5]))
    before = torch.get_rng_state()
    loss = criterion()(model, batch)
    assert torch.equal(torch.get_rng_state(), before)
    assert loss.total.item() == loss.nll.item() > 0


def test_samples_are_drawn_in_the_type_of_the_products(monkeypatch: pytest.MonkeyPatch) -> None:
    model, drawn = transformer(), []

    class Watched(Plain):
        def decodable(self, model: Any, dtype: str) -> Any:
            drawn.append(dtype)
            return super().decodable(model, "float32")

    monkeypatch.setattr(expected_reward, "fast", Watched)
    for low in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            loss = criterion(weight=0.1)(model, batch_of(([4], [4, 5]), ([5, 4], [5])))
        assert loss.total.dtype == torch.float32
    assert drawn == ["float32", "bfloat16"]


def test_gleu_is_nltks() -> None:
    """It is symmetric, as the paper says. Without tokens there is no reward."""
    for output, target, expected in [*NLTK, ([], [4], 0.0), ([], [], 0.0)]:
        assert gleu(ngrams(output), ngrams(target)) == pytest.approx(expected)
        assert gleu(ngrams(target), ngrams(output)) == pytest.approx(expected)
