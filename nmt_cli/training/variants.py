"""Variants of training sentences, drawn anew in each epoch: sampled segmentations and noise."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from nmt_cli.data import noise
from nmt_cli.data.batching import BatchPlan, Indices
from nmt_cli.data.corpus import SIDES, Corpus, MemoryCorpus
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import UNK, joined
from nmt_cli.task import Task
from nmt_cli.training.settings import TrainingConfig

_FLAGS = {"bpe": "--bpe-dropout", "unigram": "--unigram-sampling"}


class Variants:
    """Draws by (seed, epoch, number of the sentence): the same in a resumed run, and on every rank.

    A pair with characters that its vocabulary does not have, as it is or as it would be, stays as it is.

    Raises:
        UsageError: a setting does not fit the task or its vocabulary.
    """

    def __init__(self, settings: TrainingConfig, task: Task) -> None:
        self.seed, self.noise = settings.seed, noise.parsed(settings.noise)
        amounts = {"bpe": settings.bpe_dropout, "unigram": settings.unigram_sampling}
        self.active = any([*amounts.values(), *self.noise.values()])
        vocabularies = task.text_vocabularies if self.active else ()
        if vocabularies is None:
            raise UsageError(f"{', '.join(_FLAGS.values())} and --noise are for text, not for the task {task.name}")
        for vocabulary in vocabularies:
            for kind in [kind for kind in amounts if amounts[kind] and kind != vocabulary.kind]:
                advice = f"give {_FLAGS[vocabulary.kind]}" if vocabulary.kind in _FLAGS else "leave it out"
                raise UsageError(
                    f"{_FLAGS[kind]} needs a vocabulary of --subwords {kind}, this one is {vocabulary.kind}: {advice}"
                )
            if (self.noise["upper"] or self.noise["title"]) and all(text == text.lower() for text in vocabulary.texts):
                raise UsageError("--noise: upper and title have no effect on lower-cased data; leave them out")
        self.samples = {each: each.samples(max(amounts.values())) for each in vocabularies if any(amounts.values())}
        self.vocabularies = vocabularies

    def of(self, plan: BatchPlan, corpus: Corpus, epoch: int, sentences: Indices) -> tuple[BatchPlan, Corpus, Indices]:
        """Return the variants of `sentences`: a plan with their lengths, their corpus, and their indices in it."""
        if not self.active:
            return plan, corpus, sentences
        sides = [_listed(*corpus.ids(side, sentences)) for side in SIDES]
        randoms = (Random(f"{self.seed} {epoch} {number}") for number in sentences.tolist())
        pairs = [self._pair(*each) for each in zip(*sides, randoms, strict=True)]
        drawn = MemoryCorpus(*(joined([pair[side] for pair in pairs]) for side in (0, 1)))
        plan = replace(plan, source_lengths=drawn.source_lengths, target_lengths=drawn.target_lengths)
        return plan, drawn, np.arange(len(pairs))

    def _pair(self, source: list[int], target: list[int], random: Random) -> list[list[int]]:
        plain, kinds = [source, target], noise.drawn(self.noise, random)
        if UNK in source or UNK in target or not (kinds or self.samples):
            return plain
        texts = (vocabulary.decode(ids) for vocabulary, ids in zip(self.vocabularies, plain, strict=True))
        drawn = [
            self.samples[vocabulary].of(text, random) if self.samples else vocabulary.encode(text)
            for vocabulary, text in zip(self.vocabularies, noise.altered(kinds, random, *texts), strict=True)
        ]
        return plain if any(UNK in ids for ids in drawn) else drawn


def _listed(ids: Indices, lengths: Indices) -> list[list[int]]:
    """Return the ids of each sentence."""
    listed, ends = ids.tolist(), lengths.cumsum().tolist()
    return [listed[first:end] for first, end in zip([0, *ends], ends, strict=False)]
