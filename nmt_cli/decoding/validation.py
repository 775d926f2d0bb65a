"""Validation during training: scores of greedy translations."""

from __future__ import annotations

from typing import Any

import torch

from nmt_cli.data.batching import length_buckets, pad
from nmt_cli.data.corpus import Corpus
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.options import SearchOptions
from nmt_cli.interfaces import EOS, Task

_TOKENS = 4096


def translation_scores(
    model: Any, task: Task, corpus: Corpus, device: torch.device, precision: str
) -> dict[str, float]:
    """Return the task's scores of `corpus`, each as `validation_NAME`. Leaves the model in training mode."""
    model.eval()
    sources = corpus.raw_source()
    hypotheses = [""] * len(corpus)
    decodable = model.decodable(precision)
    for indices in length_buckets(corpus.source_lengths[:], corpus.target_lengths[:], _TOKENS):
        rows = [[*corpus.source(int(i)).tolist(), EOS] for i in indices]
        limits = [task.max_length(len(row) - 1) for row in rows]
        found = beam_search(decodable, pad(rows).to(device), limits, SearchOptions(beam=1))
        for i, best in zip(indices, found, strict=True):
            hypotheses[i] = task.decode_target(best[0].tokens, sources[i])
    model.train()
    return {f"validation_{name}": value for name, value in task.evaluate(hypotheses, corpus.raw_target()).items()}
