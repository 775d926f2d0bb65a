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


class Variants:
    """Draws by (seed, epoch, number of the sentence): the same in a resumed run, and on every rank.

    A pair with characters that its vocabulary does not have, as it is or as it would be, stays as it is.

    Raises:
        UsageError: a setting does not fit the task or its vocabulary.
    """

    def __init__(self, settings: TrainingConfig, task: Task) -> None:
        self.seed, self.noise = settings.seed, noise.parsed(settings.noise)
        sampling = {"bpe": settings.bpe_dropout, "unigram": settings.unigram_sampling}
        self.sampling = max(sampling.values())
        self.active = self.sampling > 0 or any(self.noise.values())
        self.vocabularies = task.text_vocabularies or ()
        if self.active and not self.vocabularies:
            raise UsageError(
                f"--bpe-dropout, --unigram-sampling and --noise cannot be used with the task {task.name}: its targets "
                "are not text"
            )
        flags = {"bpe": "--bpe-dropout 0.1", "unigram": "--unigram-sampling 0.2"}
        for vocabulary in self.vocabularies if self.active else ():
            if wrong := next((kind for kind in sampling if sampling[kind] and kind != vocabulary.kind), None):
                advice = flags.get(vocabulary.kind, "leave it out, or prepare with --subwords bpe")
                raise UsageError(
                    f"{flags[wrong].split()[0]} needs a vocabulary of --subwords {wrong}; this one is "
                    f"{vocabulary.kind}: {advice}"
                )
            if (self.noise["upper"] or self.noise["title"]) and all(text == text.lower() for text in vocabulary.texts):
                raise UsageError(
                    "--noise: upper and title have no effect on lower-cased text; leave them out, or prepare the data "
                    "without --lowercase"
                )

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
        if UNK in source or UNK in target or not (kinds or self.sampling):
            return plain
        texts = (vocabulary.decode(ids) for vocabulary, ids in zip(self.vocabularies, plain, strict=True))
        drawn = []
        for vocabulary, text in zip(self.vocabularies, noise.altered(kinds, random, *texts), strict=True):
            seed = random.getrandbits(31)
            drawn.append(vocabulary.sample(text, self.sampling, seed) if self.sampling else vocabulary.encode(text))
        return plain if any(UNK in ids for ids in drawn) else drawn


def _listed(ids: Indices, lengths: Indices) -> list[list[int]]:
    """Return the ids of each sentence."""
    listed, ends = ids.tolist(), lengths.cumsum().tolist()
    return [listed[first:end] for first, end in zip([0, *ends], ends, strict=False)]
