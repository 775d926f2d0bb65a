"""Variants of training sentences, drawn anew in each epoch: sampled segmentations and noise."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from nmt_cli.annexes.later import noise
from nmt_cli.annexes.later.settings import VariantsConfig
from nmt_cli.annexes.later.word_samples import sampler
from nmt_cli.data.corpus import SIDES, Ids, Indices, Pairs, gathered
from nmt_cli.data.sentences import Sentences
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import UNK, ragged
from nmt_cli.task import Task
from nmt_cli.tasks.translation import TranslationTask

_FLAGS = {"bpe": "--bpe-dropout", "unigram": "--unigram-sampling"}


class Variants(Sentences):
    """Draws by (seed, epoch, number of the sentence).

    A pair with characters that its vocabulary does not have, as it is or as it would be, stays as
    it is.

    Raises:
        UsageError: a setting does not fit the task or its vocabulary.
    """

    def __init__(self, config: VariantsConfig, *, task: Task, seed: int, **_: Any) -> None:
        self.seed, self.noise = seed, noise.parsed(config.noise)
        if not isinstance(task, TranslationTask):
            raise UsageError(
                f"{', '.join(_FLAGS.values())} and --noise are for text, not for the task "
                f"{task.name}"
            )
        self.vocabularies = task.vocabularies()
        amounts = {"bpe": config.bpe_dropout, "unigram": config.unigram_sampling}
        for vocabulary in self.vocabularies:
            for kind in [kind for kind in amounts if amounts[kind] and kind != vocabulary.kind]:
                advice = (
                    f"give {_FLAGS[vocabulary.kind]}"
                    if vocabulary.kind in _FLAGS
                    else "leave it out"
                )
                raise UsageError(
                    f"{_FLAGS[kind]} needs a vocabulary of --subwords {kind}, this one is "
                    f"{vocabulary.kind}: {advice}"
                )
            if (self.noise["upper"] or self.noise["title"]) and all(
                text == text.lower() for text in vocabulary.texts
            ):
                raise UsageError(
                    "--noise: upper and title have no effect on lower-cased data; leave them out"
                )
        amount = max(amounts.values())
        self.samplers = {
            vocabulary: sampler(vocabulary, amount) for vocabulary in self.vocabularies if amount
        }

    def text(self, epoch: int, numbers: Indices, pairs: Pairs) -> Pairs:
        sides = []
        for side in SIDES:
            ids, lengths = pairs.ids(side, np.arange(len(numbers)))
            sides.append([sentence.tolist() for sentence in np.split(ids, lengths.cumsum()[:-1])])
        randoms = [Random(f"{self.seed} {epoch} {number}") for number in numbers.tolist()]
        drawn = [self._pair(*pair) for pair in zip(*sides, randoms, strict=True)]
        return Drawn(
            ragged([source for source, _ in drawn]), ragged([target for _, target in drawn])
        )

    def _pair(self, source: list[int], target: list[int], random: Random) -> list[list[int]]:
        plain, kinds = [source, target], noise.drawn(self.noise, random)
        if UNK in source or UNK in target or not (kinds or self.samplers):
            return plain
        texts = [
            vocabulary.decode(ids) for vocabulary, ids in zip(self.vocabularies, plain, strict=True)
        ]
        drawn = []
        for vocabulary, text in zip(
            self.vocabularies, noise.altered(kinds, random, *texts), strict=True
        ):
            drawn.append(
                self.samplers[vocabulary](text, random)
                if self.samplers
                else vocabulary.encode(text)
            )
        return plain if any(UNK in ids for ids in drawn) else drawn


class Drawn:
    """Sentence pairs in memory: of each side all ids, and the number of ids of each sentence."""

    def __init__(self, sources: tuple[Ids, Indices], targets: tuple[Ids, Indices]) -> None:
        self.source_lengths, self.target_lengths = sources[1] + 1, targets[1] + 1
        self._sides = {
            side: (ids, np.concatenate([[0], lengths.cumsum()]))
            for side, (ids, lengths) in zip(SIDES, (sources, targets), strict=True)
        }

    def ids(self, side: str, indices: Indices) -> tuple[Ids, Indices]:
        return gathered(*self._sides[side], indices)
