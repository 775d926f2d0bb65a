"""Scores of greedy outputs during training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli import checkpoint
from nmt_cli.data.corpus import Corpus
from nmt_cli.decoding.validation import translation_scores

CPU = torch.device("cpu")


@pytest.fixture
def trained(tiny_checkpoint: Path) -> tuple[Any, Any]:
    """A model in training mode, and its task."""
    model, task = checkpoint.load_model(tiny_checkpoint)
    model.train()
    return model, task


class Lines:
    """A validation set; one of its lines is empty."""

    sources: Sequence[str] = ("abc", "h g f e", "", "bad cab", "a", "fed abc" * 9)
    targets: Sequence[str] = ("a a a a a", "b c d e", "", "bad cab face", "b", "abc" * 9)

    def raw_lines(self, side: str) -> list[str]:
        return list(self.sources if side == "source" else self.targets)


def test_the_outputs_are_those_of_greedy_translation(
    trained: tuple[Any, Any], tiny_checkpoint: Path, nmt: Callable[..., tuple[int, str, str]], tmp_path: Path
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
    assert translation_scores(model, task, corpus, CPU) == {"validation_bleu": 25.0}
    assert model.training
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in Lines.sources), encoding="utf-8")
    code, out, err = nmt("translate", tiny_checkpoint, "--beam", 1, "--input", tmp_path / "source", "--device", "cpu")
    assert code == 0, err
    assert scored == out.splitlines()
    assert len(set(scored)) > 3


def test_dropout_is_off(trained: tuple[Any, Any], tiny_data: Path) -> None:
    model, task = trained
    seen = []
    decodable = model.decodable
    model.decodable = lambda dtype: seen.append((model.training, dtype)) or decodable(dtype)
    translation_scores(model, task, Corpus.open(tiny_data, "valid"), CPU)
    assert seen == [(False, "float32")]
