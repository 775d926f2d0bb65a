"""Scores of greedy outputs during training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.data.corpus import Corpus
from nmt_cli.decoding import own_engine
from nmt_cli.device import Plain
from nmt_cli.distributed import World
from nmt_cli.training.validation import translation_scores
from nmt_cli.weights import load_model

ALONE = World(0, 1, torch.device("cpu"))


@pytest.fixture
def trained(tiny_checkpoint: Path) -> tuple[Any, Any]:
    """A model in training mode, and its task."""
    model, task = load_model(tiny_checkpoint)
    model.train()
    return model, task


class Lines:
    """A validation set. One of its lines is empty."""

    sources: Sequence[str] = ("abc", "h g f e", "", "bad cab", "a", "fed abc" * 9)
    targets: Sequence[str] = ("a a a a a", "b c d e", "", "bad cab face", "b", "abc" * 9)

    def raw_lines(self, side: str) -> list[str]:
        return list(self.sources if side == "source" else self.targets)


def test_the_outputs_are_those_of_greedy_translation(
    trained: tuple[Any, Any],
    tiny_checkpoint: Path,
    nmt: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
) -> None:
    """By `nmt translate --beam 1`, in the order of the lines."""
    model, task = trained
    corpus: Any = Lines()
    scored: list[str] = []

    def evaluate(hypotheses: Sequence[str], references: Sequence[str]) -> Any:
        assert references == list(Lines.targets)
        scored.extend(hypotheses)
        return {"bleu": 25.0}

    task.evaluate = evaluate
    assert translation_scores(model, task, corpus, ALONE) == {"bleu": 25.0}
    assert model.training
    (tmp_path / "source").write_text(
        "".join(f"{line}\n" for line in Lines.sources), encoding="utf-8"
    )
    code, out, err = nmt(
        "translate", tiny_checkpoint, "--beam", 1, "--input", tmp_path / "source", "--device", "cpu"
    )
    assert code == 0, err
    assert scored == out.splitlines()
    assert len(set(scored)) > 3


def test_the_ranks_share_the_lines(trained: tuple[Any, Any]) -> None:
    """The lines of all ranks come together in order."""
    model, task = trained
    corpus: Any = Lines()
    scored: list[list[str]] = []
    shares: list[list[str]] = [[] for _ in range(4)]

    class Rank(World):
        def gather(self, lines_of_rank: list[str]) -> list[list[str]]:
            shares[self.rank] = lines_of_rank
            return shares if self.is_main else [lines_of_rank * 2] * self.size

    task.evaluate = lambda hypotheses, references: scored.append(hypotheses) or {}
    for rank in (3, 2, 1, 0):
        translation_scores(model, task, corpus, Rank(rank, 4, ALONE.device))
    translation_scores(model, task, corpus, ALONE)
    assert [len(share) for share in shares] == [2, 2, 1, 1]
    assert scored[-2] == scored[-1]


def test_dropout_is_off(
    trained: tuple[Any, Any], tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, task = trained
    seen = []

    class Watched(Plain):
        def decodable(self, model: Any, dtype: str) -> Any:
            seen.append((model.training, dtype))
            return super().decodable(model, dtype)

    monkeypatch.setattr(own_engine, "fast", Watched)
    translation_scores(model, task, Corpus.open(tiny_data, "valid"), ALONE)
    assert seen == [(False, "float32")]
