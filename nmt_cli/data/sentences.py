"""The sentences of an epoch: how often it has a part of the text, its limits, and its text.

An extra of the kind `sentences` changes some of that. Its class is built with the keywords
`corpus`, `task` and `seed`. The batches of an epoch are planned by the lengths of the prepared
text, so every rank plans the same ones. The text of an update is known when it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nmt_cli.data.corpus import Indices, Pairs


class PlannedUpdate(NamedTuple):
    epoch: int
    position: int  # in the epoch
    sentences: Indices  # their numbers in the corpus
    ends_epoch: bool  # it is the epoch's last


class Sentences:
    """A change of an epoch's sentences. This one changes nothing: a subclass overrides methods.

    Without a change, an epoch has each part of the text by its weight, as it was prepared, in
    updates of constant size.
    """

    begins: Sequence[int] = (0,)
    """The epochs, from 0, at which `weights` or `limit` changes, in order."""

    def weights(self, epoch: int, weights: Sequence[float]) -> Sequence[float]:
        """Return how often this epoch has each part's sentences, given what is without the change.

        A part of weight 1.3 has all sentences once and three in ten once more: others in each
        epoch, in turn.
        """
        return weights

    def limit(self, epoch: int, limit: int) -> int:
        """Return the maximum of tokens, or of sentences, in an update of this epoch."""
        return limit

    def text(self, epoch: int, numbers: Indices, pairs: Pairs) -> Pairs:
        """Return the text of an update. Its sentences have these numbers in the corpus.

        The text depends on nothing else, so that it is the same in a resumed run, on each rank and
        in each process. If the change can be pickled, processes beside the training draw the text
        for a GPU.
        """
        return pairs

    def lines(self, epochs: float) -> list[str]:
        """Return lines for users, before training starts, about the change in so many epochs."""
        return []


def changed(changes: Sequence[Sentences], update: tuple[PlannedUpdate, Pairs]) -> Pairs:
    """Return the text of an update, or of some of its sentences, given what was prepared."""
    planned, pairs = update
    if not len(planned.sentences):
        return pairs
    for change in changes:
        pairs = change.text(planned.epoch, planned.sentences, pairs)
    return pairs
