"""Checkpoints of tiny models with random weights, which always translate into the same nonsense."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli import registry
from nmt_cli.annexes.exchange.export.writing import write_export
from nmt_cli.checkpoint import Contents
from nmt_cli.interfaces import EOS
from nmt_cli.weights import build_model, save_checkpoint, weights_of

MODEL = {"name": "transformer", "num_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2}


@pytest.fixture(scope="session")
def make_checkpoint() -> Callable[..., Path]:
    """Writes a checkpoint of another model for each seed.

    The vocabulary has one entry for each letter of `letters`.

    `model` are settings of the Transformer; `separate` vocabularies are of the same letters; `ends`
    lets outputs end before their limit; `noise` is added to biases and layer norms, which start as
    zeros and ones.
    """

    def make(
        folder: Path,
        seed: int = 12,
        letters: str = "abcdefgh",
        step: int = 1,
        *,
        model: Mapping[str, Any] | None = None,
        attention: str = "full",
        separate: bool = False,
        normalization: str = "nmt_nfkc",
        ends: bool = False,
        noise: float = 0.0,
        symbols: str = "",
        subwords: str = "bpe",
    ) -> Path:
        registry.discover()
        size = 5 + len(letters) + len(symbols.split(",") if symbols else [])
        settings: dict[str, Any] = {
            "vocab_size": size,
            "separate_vocabularies": separate,
            "normalization": normalization,
            "subwords": subwords,
        }
        component = registry.find("task", "translation")
        if symbols:
            settings["symbols"] = symbols  # of an annex
        task = component.build(component.config("en", "de", **settings))
        task.learn([(letters, letters[::-1])])
        vocabulary = (
            task.source_vocabulary_size,
            task.target_vocabulary_size,
            task.shared_vocabulary,
        )
        sections = {"model": {**MODEL, **(model or {})}, "attention": {"name": attention}}
        contents = Contents(sections, *vocabulary, step, "run")
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(seed)
            built = build_model(contents, str(folder))
            # Decided opinions, and by default none about the end: outputs that are not empty.
            built.get_parameter("target_embedding.weight").mul_(3)[EOS] *= ends
            for vector in (parameter for parameter in built.parameters() if parameter.dim() == 1):
                vector.add_(noise * torch.randn_like(vector))
        save_checkpoint(folder, contents, weights_of(built), task)
        return folder

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(
    make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A checkpoint that all tests read and none changes."""
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint")


@pytest.fixture(scope="session")
def tiny_export(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint for CTranslate2. All tests read it and none changes it."""
    out = tmp_path_factory.mktemp("export") / "ctranslate2"
    write_export(tiny_checkpoint, "ctranslate2", out)
    return out
