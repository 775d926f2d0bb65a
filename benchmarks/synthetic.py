"""Models with random weights, and random sentences: speed does not depend on their meaning."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers.serve import Size, word
from nmt_cli import checkpoint, registry
from nmt_cli.config import resolve
from nmt_cli.data.batching import length_buckets
from nmt_cli.data.corpus import MANIFEST, SCHEMA, SIDES, CorpusWriter
from nmt_cli.interfaces import BOS, PAD, SPECIAL_SYMBOLS, UNK
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.weights import build_model, save_checkpoint, weights_of

FIRST = len(SPECIAL_SYMBOLS)
"""The id of the first word."""
Ids = list[int]
Pair = tuple[Ids, Ids]  # a source and a target, without the ends of the sentences
ENDLESS = 10**9
NOTHING_ELSE: dict[str, Any] = {"save_every": ENDLESS, "sustained_tflops": 1.0, "peak_tflops": 1.0}
"""Flags of `nmt train` with which it saves at the end only, and measures no rates of the device."""
ALPHA = 0.6
"""The exponent of the length penalty. Outputs have one length, so it changes nothing."""
SIZES = {
    "base": Size(6, 512, 2048, 8, 37_000),
    "small": Size(3, 256, 1024, 4, 8_000),
    "words": Size(4, 256, 1024, 4, 100),  # the preset `transduction`: words, spelt in characters
}
MEAN_LENGTHS = {"base": 25, "small": 25, "words": 10}
"""Words, or characters, of a sentence."""


def line(ids: Sequence[int]) -> str:
    """Return the sentence with these ids.

    The words are in the order of the vocabulary, which sorts them.
    """
    return " ".join(map(word, ids))


def model_flags(size: Size) -> dict[str, Any]:
    """Return the flags of `nmt train` for a model of `size`."""
    return {
        "num_layers": size.layers,
        "d_model": size.width,
        "d_ff": size.inner,
        "num_heads": size.heads,
    }


def flag_words(flags: Mapping[str, Any]) -> list[str]:
    """Return flags by their names, such as `d_model`, as words of a command line."""
    return [
        word
        for name, value in flags.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def word_task(vocabulary: int) -> TranslationTask:
    """Return a task whose subwords are the words of `line`."""
    task = TranslationTask(TranslationConfig(subwords="none", vocab_size=vocabulary))
    task.learn([(line(range(FIRST, vocabulary)), "")])
    return task


def save_model(folder: Path, size: Size) -> Path:
    """Write a checkpoint of `size` with random weights to the new directory `folder`.

    Return its path.
    """
    registry.discover()
    task = word_task(size.vocabulary)
    config = resolve(TrainingConfig, model_flags(size))
    contents = checkpoint.Contents(
        sections=config.to_json(),
        source_vocabulary_size=task.source_vocabulary_size,
        target_vocabulary_size=task.target_vocabulary_size,
        shared_vocabulary=task.shared_vocabulary,
        step=1,
        run="synthetic",
    )
    torch.manual_seed(1)
    weights = weights_of(build_model(contents, str(folder)))
    # With the usual initial weights the outputs would repeat their first token.
    weights[f"decoder.{size.layers - 1}.around_feed_forward.norm.weight"].normal_()
    # No system chooses them: they are not the best.
    weights["target_embedding.weight"][[PAD, UNK, BOS]] = 0.0
    save_checkpoint(folder, contents, weights, task)
    return folder


def random_sources(
    count: int, shortest: int, longest: int, vocabulary: int, seed: int = 1
) -> list[list[int]]:
    """Return sources of `shortest` to `longest` words, without the end of the sentence."""
    draw = random.Random(seed)
    return [
        [draw.randrange(FIRST, vocabulary) for _ in range(draw.randint(shortest, longest))]
        for _ in range(count)
    ]


def random_pairs(count: int, vocabulary: int, mean: float = 25.0, seed: int = 1) -> list[Pair]:
    """Return sentence pairs with the lengths of running text: log-normal, 3 to 4 times the mean."""
    draw = np.random.default_rng(seed)
    source = draw.lognormal(np.log(mean) - 0.15, 0.55, count).round()
    source = np.clip(source, 3, 4 * mean).astype(int)
    target = np.clip((source * draw.lognormal(0.0, 0.15, count)).round(), 3, 4 * mean).astype(int)
    words = [draw.integers(FIRST, vocabulary, lengths.sum()) for lengths in (source, target)]
    sides = [
        np.split(ids, np.cumsum(lengths)[:-1])
        for ids, lengths in zip(words, (source, target), strict=True)
    ]
    return [(s.tolist(), t.tolist()) for s, t in zip(*sides, strict=True)]


def batches(
    pairs: Sequence[Pair], tokens: int, count: int, seed: int = 1
) -> list[tuple[list[Ids], list[Ids]]]:
    """Return sources and targets of up to `count` batches of similar lengths, drawn from `pairs`.

    Args:
        tokens: source tokens, and target tokens, of a batch at most; padding and the ends of
            sentences included.
    """
    source, target = (np.array([len(pair[side]) + 1 for pair in pairs]) for side in (0, 1))
    groups = length_buckets(source, target, tokens)
    chosen = random.Random(seed).sample(groups, min(count, len(groups)))
    return [([pairs[i][0] for i in group], [pairs[i][1] for i in group]) for group in chosen]


def write_corpus(folder: Path, pairs: Iterable[Pair], vocabulary: int) -> None:
    """Write the pairs as prepared data, with a training set only, to the new directory `folder`."""
    registry.discover()
    (folder / checkpoint.TASK).mkdir(parents=True)
    word_task(vocabulary).save(folder / checkpoint.TASK)
    with CorpusWriter(folder, "train", (vocabulary, vocabulary)) as writer:
        for side, sentences in zip(SIDES, zip(*pairs, strict=True), strict=True):
            writer.add(side, np.concatenate(sentences), np.array([len(ids) for ids in sentences]))
        manifest = {"schema": SCHEMA, "splits": {"train": writer.close()}}
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def flops_of_token(size: Size, pairs: Sequence[Pair]) -> float:
    """Return the operations for a target token of these pairs, both passes, without padding."""
    registry.discover()
    config = resolve(TrainingConfig, model_flags(size))
    vocabularies = {
        "source_vocabulary_size": size.vocabulary,
        "target_vocabulary_size": size.vocabulary,
    }
    with torch.device("meta"):
        model = registry.build(
            config["model"], attention=config["attention"], **vocabularies, shared_vocabulary=True
        )
    source, target = (np.array([len(pair[side]) + 1 for pair in pairs]) for side in (0, 1))
    return float(sum(model.training_flops(source, target).values()) / target.sum())
