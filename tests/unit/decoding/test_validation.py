from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.options import SearchOptions
from nmt_cli.decoding.validation import translation_scores

SOURCES = [[4, 5, 6, 7, 8], [5], [4, 4], [8, 7, 6], [6]]


class Trained:
    """A model in training, which decodes as a toy does."""

    def __init__(self, decodable: Any) -> None:
        self.training, self.made, self.asked = True, decodable, ""

    def train(self, mode: bool = True) -> None:
        self.training = mode

    def eval(self) -> None:
        self.train(False)

    def decodable(self, dtype: str) -> Any:
        assert not self.training
        self.asked = dtype
        return self.made


@pytest.mark.parametrize(("precision", "dtype"), [("float32", "float32"), ("bfloat16", "bfloat16")])
def test_greedy_translations_are_scored_in_order(
    toy: Callable[..., Any], padded: Any, precision: str, dtype: str
) -> None:
    def evaluate(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        assert references == ["reference"] * 5
        scored.extend(hypotheses)
        return {"bleu": 25.0}

    class Corpus:
        source_lengths = target_lengths = np.array([len(source) + 1 for source in SOURCES])

        def __len__(self) -> int:
            return len(SOURCES)

        def source(self, number: int) -> Any:
            return np.array(SOURCES[number])

        def raw_source(self) -> list[str]:
            return [f"line {number}" for number in range(5)]

        def raw_target(self) -> list[str]:
            return ["reference"] * 5

    scored: list[str] = []
    task: Any = SimpleNamespace(
        max_length=lambda length: length + 4, decode_target=lambda ids, line: f"{line}: {ids}", evaluate=evaluate
    )
    model, corpus = Trained(toy(9, 3)), Corpus()
    scores = translation_scores(model, task, corpus, torch.device("cpu"), precision)  # type: ignore[arg-type]
    assert scores == {"validation_bleu": 25.0}
    alone = [beam_search(toy(9, 3), padded([s]), [len(s) + 4], SearchOptions(beam=1))[0][0].tokens for s in SOURCES]
    assert scored == [f"line {number}: {tokens}" for number, tokens in enumerate(alone)]
    assert (model.training, model.asked) == (True, dtype)
