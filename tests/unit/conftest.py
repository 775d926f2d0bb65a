"""Checkpoints of tiny models with random weights: they translate into nonsense, but always the same nonsense."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt_cli import checkpoint, registry
from nmt_cli.checkpoint import Contents
from nmt_cli.interfaces import EOS
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask

SECTIONS = {
    "model": {"name": "transformer", "num_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2},
    "attention": {"name": "full"},
}


@pytest.fixture(scope="session")
def make_checkpoint() -> Callable[..., Path]:
    """Writes a checkpoint of another model for each seed; the vocabulary has one entry for each letter of `letters`."""

    def make(folder: Path, seed: int = 12, letters: str = "abcdefgh", step: int = 1) -> Path:
        registry.discover()
        task = TranslationTask(
            TranslationConfig(source_lang="en", target_lang="de", subwords="bpe", vocab_size=5 + len(letters))
        )
        task.learn([(letters, letters[::-1])])
        vocabulary = (task.source_vocabulary_size, task.target_vocabulary_size, task.shared_vocabulary)
        contents = Contents(SECTIONS, *vocabulary, step, "run")
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = checkpoint.build_model(contents, str(folder))
        with torch.no_grad():  # decided opinions, and none about the end: outputs that are not empty
            model.get_parameter("target_embedding.weight").mul_(3)[EOS] = 0
        checkpoint.save(folder, contents, checkpoint.weights_of(model), task)
        return folder

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that all tests read and none changes."""
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint")
