"""Models with random weights, and sources of random words: speed does not depend on what a sentence says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from nmt_cli import checkpoint, registry
from nmt_cli.config import resolve
from nmt_cli.interfaces import BOS, PAD, SPECIAL_SYMBOLS, UNK
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask
from nmt_cli.training.settings import TrainingConfig

FIRST = len(SPECIAL_SYMBOLS)
"""The id of the first word."""
ALPHA = 0.6
"""The exponent of the length penalty. Outputs have one length, so it changes nothing."""


@dataclass(frozen=True)
class Size:
    """The size of a model."""

    layers: int  # of the encoder, and of the decoder
    width: int
    inner: int  # width of the feed-forward layers
    heads: int
    vocabulary: int


SIZES = {"base": Size(6, 512, 2048, 8, 37_000), "small": Size(3, 256, 1024, 4, 8_000)}


def line(ids: Sequence[int]) -> str:
    """Return the sentence with these ids. The words are in the order of the vocabulary, which sorts them."""
    return " ".join(f"{number:06}" for number in ids)


def save_model(folder: Path, size: Size) -> Path:
    """Write a checkpoint of `size` with random weights to the new directory `folder`; return its path."""
    registry.discover()
    task = TranslationTask(TranslationConfig(subwords="none", vocab_size=size.vocabulary))
    words = line(range(FIRST, size.vocabulary))
    task.learn([(words, "")])
    flags = {"num_layers": size.layers, "d_model": size.width, "d_ff": size.inner, "num_heads": size.heads}
    config = resolve(TrainingConfig, flags)
    contents = checkpoint.Contents(
        sections=config.to_json(),
        source_vocabulary_size=task.source_vocabulary_size,
        target_vocabulary_size=task.target_vocabulary_size,
        shared_vocabulary=task.shared_vocabulary,
        step=1,
        run="synthetic",
    )
    torch.manual_seed(1)
    weights = checkpoint.weights_of(checkpoint.build_model(contents, str(folder)))
    # With the usual initial weights the outputs would repeat their first token.
    weights[f"decoder.{size.layers - 1}.around_feed_forward.norm.weight"].normal_()
    weights["target_embedding.weight"][[PAD, UNK, BOS]] = 0.0  # no system chooses them: they are not the best
    checkpoint.save(folder, contents, weights, task)
    return folder


def random_sources(count: int, shortest: int, longest: int, vocabulary: int, seed: int = 1) -> list[list[int]]:
    """Return sources of `shortest` to `longest` words, without the end of the sentence."""
    draw = random.Random(seed)
    return [[draw.randrange(FIRST, vocabulary) for _ in range(draw.randint(shortest, longest))] for _ in range(count)]
