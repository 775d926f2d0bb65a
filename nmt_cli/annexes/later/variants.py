"""Variants of training sentences, drawn anew in each epoch: sampled segmentations and noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

import numpy as np

from nmt_cli.annexes.later import noise
from nmt_cli.annexes.later.settings import VariantsConfig
from nmt_cli.annexes.later.word_samples import sampler
from nmt_cli.data.corpus import Indices, Pairs, PairsInMemory
from nmt_cli.data.sentences import Sentences
from nmt_cli.data.vocabulary import Vocabulary
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import UNK, ragged
from nmt_cli.task import Task
from nmt_cli.tasks.translation import TranslationTask

_FLAGS = {"bpe": "--bpe-dropout", "unigram": "--unigram-sampling"}


class Variants(Sentences):
    """Draws by (seed, epoch, number of the sentence).

    A pair stays as it is, if it has characters that its vocabulary does not have, or would get
    some.

    Raises:
        UsageError: a setting does not fit the task or its vocabulary.
    """

    def __init__(self, config: VariantsConfig, *, task: Task, seed: int, **_: Any) -> None:
        self._anew = partial(type(self), config, task=task, seed=seed)
        self.seed = seed
        self.noise = noise.parsed(config.noise)
        if not isinstance(task, TranslationTask):
            raise UsageError(
                f"{', '.join(_FLAGS.values())} and --noise are for text, not for the task "
                f"{task.name}"
            )
        self.vocabularies = task.vocabularies()
        amounts = {"bpe": config.bpe_dropout, "unigram": config.unigram_sampling}
        has_capitals = bool(self.noise["upper"] or self.noise["title"])
        for vocabulary in self.vocabularies:
            check_vocabulary(vocabulary, amounts, has_capitals)
        amount = max(amounts.values())
        self.samplers = {}
        if amount:
            self.samplers = {
                vocabulary: sampler(vocabulary, amount) for vocabulary in self.vocabularies
            }

    def __reduce__(self) -> tuple[Callable[[], Variants], tuple[()]]:
        return self._anew, ()  # the samplers' caches cannot be pickled

    def text(self, epoch: int, numbers: Indices, pairs: Pairs) -> Pairs:
        """See `Sentences`."""
        sources = sentences_of(pairs, "source")
        targets = sentences_of(pairs, "target")
        drawn_sources = []
        drawn_targets = []
        for number, source, target in zip(numbers.tolist(), sources, targets, strict=True):
            random = Random(f"{self.seed} {epoch} {number}")
            drawn_source, drawn_target = self._pair(source, target, random)
            drawn_sources.append(drawn_source)
            drawn_targets.append(drawn_target)
        return PairsInMemory(ragged(drawn_sources), ragged(drawn_targets))

    def _pair(
        self, source: list[int], target: list[int], random: Random
    ) -> tuple[list[int], list[int]]:
        """Return a sentence pair with noise and sampled segmentations."""
        kinds = noise.drawn(self.noise, random)
        if UNK in source or UNK in target or not (kinds or self.samplers):
            return source, target
        source_vocabulary, target_vocabulary = self.vocabularies
        source_text, target_text = noise.altered(
            kinds, random, source_vocabulary.decode(source), target_vocabulary.decode(target)
        )
        drawn_source = self._ids(source_vocabulary, source_text, random)
        drawn_target = self._ids(target_vocabulary, target_text, random)
        if UNK in drawn_source or UNK in drawn_target:
            return source, target
        return drawn_source, drawn_target

    def _ids(self, vocabulary: Vocabulary, text: str, random: Random) -> list[int]:
        if not self.samplers:
            return vocabulary.encode(text)
        return self.samplers[vocabulary](text, random)


def check_vocabulary(
    vocabulary: Vocabulary, amounts: Mapping[str, float], has_capitals: bool
) -> None:
    """Raise a UsageError if a setting has no use for this vocabulary.

    Args:
        amounts: of sampling, by the kind of vocabulary that it is for.
        has_capitals: whether the noise changes capitals.
    """
    for kind, amount in amounts.items():
        if amount and kind != vocabulary.kind:
            advice = "leave it out"
            if vocabulary.kind in _FLAGS:
                advice = f"give {_FLAGS[vocabulary.kind]}"
            raise UsageError(
                f"{_FLAGS[kind]} needs a vocabulary of --subwords {kind}, this one is "
                f"{vocabulary.kind}: {advice}"
            )
    if has_capitals and all(text == text.lower() for text in vocabulary.texts):
        raise UsageError(
            "--noise: upper and title have no effect on lower-cased data; leave them out"
        )


def sentences_of(pairs: Pairs, side: str) -> list[list[int]]:
    """Return the ids of each sentence of one side."""
    ids, lengths = pairs.ids(side, np.arange(len(pairs.source_lengths)))
    ends = lengths.cumsum()
    return [sentence.tolist() for sentence in np.split(ids, ends[:-1])]
