"""Guided alignment: a head of the decoder follows word alignments given as a file (Garg et al.
2019, section 4.2).

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

from nmt_cli.annexes.around.attention import WORD, words_of
from nmt_cli.annexes.around.settings import GuidedAlignmentConfig
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.data.corpus import SIDES
from nmt_cli.data.sentences import Sentences
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
    """In evaluation mode it is label-smoothed cross-entropy. `attention.py` uses the guided head."""

    takes_bins = False  # the kernel sees padded sentences

    def __init__(self, config: GuidedAlignmentConfig) -> None:
        super().__init__(config)
        self.file, self.weight = config.alignment_file, config.alignment_weight
        self.links: dict[int, bytes] = {}
        self.kept: Any = None  # the last input of the guided attention's kernel

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
        if any(type(change).text is not Sentences.text for change in run.plan.changes):
            raise UsageError(
                "--alignment-file cannot be used with --bpe-dropout, --unigram-sampling or --noise"
            )
        lines = enumerate(read_lines(Path(self.file)), 1)
        self.links = dict(
            linked_pieces(task, line, f"{self.file}:{number}") for number, line in lines
        )
        found = 0
        for part in np.array_split(np.arange(len(corpus)), len(corpus) // CHUNK + 1):
            sides = (corpus.ids(side, part) for side in SIDES)
            pairs = zip(
                *(np.split(ids, lengths.cumsum()[:-1]) for ids, lengths in sides), strict=True
            )
            found += sum(
                key_of([*s.tolist(), EOS, BOS, *t.tolist()]) in self.links for s, t in pairs
            )
        if not found:
            raise DataError(
                f"{self.file}: no line is of the training text; give the lines that nmt prepare "
                "read"
            )
        if run.world.is_main:
            say(
                f"{self.file}: {counted(len(self.links), 'pair')}, {found:,} of {len(corpus):,} in "
                "the training text"
            )
        layer: Any = model.decoder[-2:][0]  # before the last, or the only one
        layer.cross_attention.kernel.register_forward_pre_hook(
            lambda _, inputs: setattr(self, "kept", inputs)
        )

    def __call__(self, model: Any, batch: Batch) -> Loss:
        """See `Criterion`."""
        loss = super().__call__(model, batch)
        if not (model.training and self.links):
            return loss
        query, key, _, mask = self.kept  # [B, H, T, d_k], [B, H, S, d_k]
        with autocast(query.device, "float32"):
            # [B, T, S]
            weights = softmax_weights(query[:, :1].float(), key[:, :1].float(), mask).squeeze(1)
        gold = torch.zeros(weights.shape)
        for shares, source, target in zip(
            gold, batch.source.tolist(), batch.target_in.tolist(), strict=True
        ):
            links = np.frombuffer(self.links.get(key_of(source + target), b""), np.uint16).astype(
                int
            )
            shares[links[1::2] + 1, links[::2]] = 1
        gold = (gold / gold.sum(2, keepdim=True).clamp(min=1)).to(weights.device)
        guided = -(gold * weights.clamp(min=SMALLEST).log()).sum()
        return Loss(loss.total + self.weight * guided, loss.nll, loss.num_tokens)


def key_of(pair: list[int]) -> int:
    """Return a hash of the ids of a source, EOS, BOS and a target, with any padding; the same in
    every process.
    """
    return hash(tuple(i for i in pair if i != PAD))


def linked_pieces(task: Task, line: str, place: str) -> tuple[int, bytes]:
    """Return the key of a pair of sentences, and its links: source piece, target piece and so on,
    of 16 bits.

    Args:
        line: source, target and links of words, such as `0-0 2-1`, with a tab between two.

    Raises:
        DataError: there are other columns, or a link is none of the pair.
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
        i, j = map(int, numbers.groups()) if numbers else (-1, -1)
        if not (0 <= i < source_words and 0 <= j < target_words):
            counts = (
                f"{counted(source_words, 'source word')} and {counted(target_words, 'target word')}"
            )
            raise DataError(
                f"{place}: {link} is no link of {counts}, counted from 0, as 0-2 is of words 0 and "
                "2"
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
    """Return the pieces of a word; `words` is in order."""
    return range(bisect_left(words, word), bisect_right(words, word))
