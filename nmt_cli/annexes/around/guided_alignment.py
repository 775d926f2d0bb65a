"""Guided alignment: a head of the decoder follows word alignments given as a file.

The method is by Garg et al. (2019, "Jointly Learning to Align and Translate with Transformer
Models", section 4.2).

The loss of a target token has a second term: the cross-entropy of the head's weights with the
token's links, which have equal shares. The weights are those where the decoder reads the token, so
that it is known (Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine
Translation", section 3). Where it predicts the token, errors were more.

Letters: B sentences, T target length, S source length, H heads.
"""

from __future__ import annotations

import itertools
import re
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt_cli.annexes.around.attention import words_of
from nmt_cli.annexes.around.settings import GuidedAlignmentConfig
from nmt_cli.annexes.around.words import WORD
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.data.corpus import SIDES, Corpus
from nmt_cli.device import autocast
from nmt_cli.errors import DataError, UsageError, counted
from nmt_cli.files.text import read_lines
from nmt_cli.interfaces import BOS, EOS, PAD, Batch, Loss
from nmt_cli.layers.attention import softmax_weights
from nmt_cli.models.transformer import Transformer
from nmt_cli.streams import say
from nmt_cli.task import Task
from nmt_cli.training.run import Run

CHUNK = 10_000  # pairs of prepared data that are looked up together
LONGEST = (1 << 16) - 1  # pieces of a sentence with links
SMALLEST = 1e-30  # a smaller weight has no gradient


class GuidedAlignment(LabelSmoothedCrossEntropy):
    """Label-smoothed cross-entropy, in training with the term for the head's weights."""

    takes_bins = False  # the kernel sees padded sentences

    def __init__(self, config: GuidedAlignmentConfig) -> None:
        super().__init__(config)
        self.file, self.weight = config.alignment_file, config.alignment_weight
        self.links: dict[int, bytes] = {}
        self.attention_inputs: Any = None  # of the guided attention's kernel, in the last batch

    def prepare(self, run: Run) -> None:
        """See `Criterion`.

        Raises:
            UsageError: there is no file, the model or the task has nothing to align, or training
                alters the sentences.
            DataError: as `linked_pieces`, or no line is a pair of the training text.
        """
        model, task, corpus = run.model, run.task, run.corpus
        if not self.file:
            raise UsageError("--criterion guided_alignment needs --alignment-file FILE")
        if not isinstance(model, Transformer) or task.languages is None:
            raise UsageError(
                "--criterion guided_alignment is for Transformers, on tasks with text on both sides"
            )
        if run.plan.text_changes():
            raise UsageError(
                "--alignment-file cannot be used with --bpe-dropout, --unigram-sampling or --noise"
            )
        for number, line in enumerate(read_lines(Path(self.file)), 1):
            key, links = linked_pieces(task, line, f"{self.file}:{number}")
            self.links[key] = links
        linked = self._linked_pairs(corpus)
        if not linked:
            raise DataError(
                f"{self.file}: no line is of the training text; give the lines that nmt prepare "
                "read"
            )
        if run.world.is_main:
            pairs = counted(len(self.links), "pair")
            say(f"{self.file}: {pairs}, {linked:,} of {len(corpus):,} in the training text")

        # Not a method: a copy of the model copies what its hooks are bound to.
        def note_inputs(_: Any, inputs: Any) -> None:
            self.attention_inputs = inputs

        layer: Any = model.decoder[-2:][0]  # before the last, or the only one
        layer.cross_attention.kernel.register_forward_pre_hook(note_inputs)

    def _linked_pairs(self, corpus: Corpus) -> int:
        """Return the number of pairs of the training text that have links."""
        linked = 0
        for part in np.array_split(np.arange(len(corpus)), len(corpus) // CHUNK + 1):
            sides = []
            for side in SIDES:
                ids, lengths = corpus.ids(side, part)
                sides.append(np.split(ids, lengths.cumsum()[:-1]))
            for source, target in zip(*sides, strict=True):
                if key_of([*source.tolist(), EOS, BOS, *target.tolist()]) in self.links:
                    linked += 1
        return linked

    def __call__(self, model: Any, batch: Batch) -> Loss:
        """See `Criterion`."""
        loss = super().__call__(model, batch)
        if not (model.training and self.links):
            return loss
        query, key, _, mask = self.attention_inputs  # [B, H, T, d_k], [B, H, S, d_k]
        first_query, first_key = query[:, :1].float(), key[:, :1].float()
        with autocast(query.device, "float32"):
            weights = softmax_weights(first_query, first_key, mask).squeeze(1)  # [B, T, S]
        gold = torch.zeros(weights.shape)
        sources, targets = batch.source.tolist(), batch.target_in.tolist()
        for shares, source, target in zip(gold, sources, targets, strict=True):
            pieces = self.links.get(key_of(source + target), b"")
            links = np.frombuffer(pieces, np.uint16).astype(int)
            source_pieces, target_pieces = links[::2], links[1::2]
            shares[target_pieces + 1, source_pieces] = 1  # the row of BOS is before them
        shares_of_token = gold.sum(2, keepdim=True).clamp(min=1)  # [B, T, 1]
        gold = (gold / shares_of_token).to(weights.device)
        guided = -(gold * weights.clamp(min=SMALLEST).log()).sum()
        return Loss(loss.total + self.weight * guided, loss.nll, loss.num_tokens)


def key_of(pair: list[int]) -> int:
    """Return a hash of the ids of a source, EOS, BOS and a target, without padding."""
    # A hash of integers is the same in every process.
    return hash(tuple(i for i in pair if i != PAD))


def linked_pieces(task: Task, line: str, place: str) -> tuple[int, bytes]:
    """Return the key of a pair of sentences, and the links of its pieces.

    The links are source piece, target piece and so on, of 16 bits.

    Args:
        line: source, target and links of words, such as `0-0 2-1`, with a tab between two.

    Raises:
        DataError: there are other columns, or a link is not of words of the pair.
    """
    cells = line.split("\t")
    if len(cells) != 3:
        raise DataError(
            f"{place}: expected 3 columns with tabs between (source, target, links), found "
            f"{len(cells)}"
        )
    source, target, written = cells
    source_words, target_words = len(WORD.findall(source)), len(WORD.findall(target))
    links = list[tuple[int, int]]()
    for link in sorted(set(written.split())):
        numbers = re.fullmatch(r"(0|[1-9]\d{0,8})-(0|[1-9]\d{0,8})", link, re.ASCII)
        in_words = False
        if numbers:
            i, j = int(numbers[1]), int(numbers[2])
            in_words = i < source_words and j < target_words
        if not in_words:
            sources = counted(source_words, "source word")
            targets = counted(target_words, "target word")
            raise DataError(
                f"{place}: {link} is no link of {sources} and {targets}, counted from 0, "
                "as 0-2 is of words 0 and 2"
            )
        links.append((i, j))
    source_ids, target_ids = task.encode_source(source), task.encode_target(target)
    key = key_of([*source_ids, EOS, BOS, *target_ids])
    if max(len(source_ids), len(target_ids)) > LONGEST:
        return key, b""
    first = words_of(task.source_tokens(source_ids), source)
    second = words_of(task.target_tokens(target_ids), target)
    pieces = array("H")
    for i, j in links:
        for pair in itertools.product(_pieces(first, i), _pieces(second, j)):
            pieces.extend(pair)
    return key, pieces.tobytes()


def _pieces(words: list[int], word: int) -> range:
    """Return the pieces of a word. `words` is in order."""
    return range(bisect_left(words, word), bisect_right(words, word))
