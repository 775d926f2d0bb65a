"""fairseq: its TransformerModel, label-smoothed criterion and Adam."""

from __future__ import annotations

import types
from typing import Any

import fairseq
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.optim.adam import Adam
from torch import Tensor

from benchmarks.peers.fairseq import THEIRS, dictionary, random_model
from benchmarks.peers.training.serve import ADAM, SMOOTHING, Batch, Setup, System, serve, system_of


def build(setup: Setup) -> System:
    words = dictionary(setup.vocabulary)
    model = random_model(setup, words).train()
    task: Any = types.SimpleNamespace(source_dictionary=words, target_dictionary=words)
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=SMOOTHING)
    optimizer = Adam(model.parameters(), **ADAM)

    def step(batch: Batch) -> None:
        source = theirs(batch.source)
        inputs = {
            "src_tokens": source,
            "src_lengths": (source != words.pad()).sum(1),
            "prev_output_tokens": theirs(batch.target_in),
        }
        sample = {"net_input": inputs, "target": theirs(batch.target_out), "ntokens": batch.tokens}
        loss, tokens, _ = criterion(model, sample)
        optimizer.zero_grad()
        (loss / tokens).backward()
        optimizer.step()

    return system_of(f"{fairseq.__version__}, torch {torch.__version__}", setup, step)


def theirs(ids: Tensor) -> Tensor:
    """Return fairseq's ids of nmt's."""
    table = torch.tensor(THEIRS)
    return torch.where(ids < len(THEIRS), table[ids.clamp(max=len(THEIRS) - 1)], ids)


if __name__ == "__main__":
    serve(build, ("float32",))
