"""Micro-batches that fit into the memory of a GPU, found before the first update."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from nmt_cli.data.batching import cut
from nmt_cli.data.corpus import Indices
from nmt_cli.device import is_out_of_memory
from nmt_cli.errors import TrainingError, counted
from nmt_cli.interfaces import Batch
from nmt_cli.training.trainer import Trainer
from nmt_cli.training.updates import Updates

SAMPLED_UPDATES = 1000  # updates among which the largest micro-batches are looked for


def fitting_micro_batches(trainer: Trainer, count: int) -> int:
    """Return `count`, doubled until the largest micro-batches fit into memory.

    Raises:
        TrainingError: a layer cannot be compiled, or there is not enough memory. The count stays as
            --micro-batches says, and a micro-batch of one sentence cannot be smaller.
    """
    check_state(trainer)
    while True:
        batches = largest(trainer.updates, count)
        # This compiles the layers, in a resumed run as in a new one, so that both compute with the
        # same code.
        is_full = not fits(trainer, batches)
        if is_full:
            most_sentences = max(len(batch.source) for batch in batches)
            if trainer.config.micro_batches is not None or most_sentences == 1:
                raise out_of_memory(batches, count)
        any_is_full = trainer.world.start_any([is_full])()[0]
        if not any_is_full:
            return count
        count *= 2


def check_state(trainer: Trainer) -> None:
    """Raise a TrainingError unless gradients and Adam's two moments fit.

    Smaller batches would not help.
    """
    parameters = trainer.parameters
    if not trainer.optimizer.state:  # a new run: the moments have no memory yet
        parameters = 3 * parameters
    try:
        _ = [torch.empty_like(parameter) for parameter in parameters]
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            "out of memory: the weights, their gradients and the optimizer's state do not fit into "
            "this GPU; choose a smaller model"
        ) from error


def largest(updates: Updates, count: int) -> list[Batch]:
    """Return the two micro-batches that need most memory, by two measures.

    They are of the first updates, which are a random sample of the data.
    """
    plan = updates.plan
    candidates = []  # the needs of a micro-batch, and its sentences
    for *_, samples in plan.samples(SAMPLED_UPDATES):
        for update in samples:
            source_lengths = plan.source_lengths[update]
            target_lengths = plan.target_lengths[update]
            for places in cut(source_lengths, target_lengths, count, updates.packed):
                if len(places):
                    needs = needs_of(source_lengths[places], target_lengths[places], updates.packed)
                    candidates.append((needs, update[places]))
    most_states = max(candidates, key=lambda candidate: candidate[0].states)
    most_weights = max(candidates, key=lambda candidate: candidate[0].weights)
    batches = []
    for _, sentences in (most_states, most_weights):
        pairs = updates.text(0, sentences)
        batches.append(updates.load(pairs, np.arange(len(sentences))))
    return batches


class Needs(NamedTuple):
    """The memory that a micro-batch needs, in units that compare with other micro-batches."""

    states: int  # hidden states
    weights: int  # attention weights


def needs_of(source_lengths: Indices, target_lengths: Indices, packed: bool) -> Needs:
    """Return the needs of sentences of these lengths."""
    source_width = int(source_lengths.max())
    target_width = int(target_lengths.max())
    if packed:  # in bins, which are as wide as the longest sentence
        tokens = int(source_lengths.sum() + target_lengths.sum())
        return Needs(states=tokens, weights=max(source_width, target_width))
    sentences = len(source_lengths)
    return Needs(
        states=sentences * (source_width + target_width),
        weights=sentences * (source_width**2 + target_width**2),
    )


def fits(trainer: Trainer, batches: Sequence[Batch]) -> bool:
    """Return whether `batches` can be run forwards and backwards in memory, without an update."""
    gradients = trainer.gradients
    device = trainer.world.device
    try:
        moments = []
        if not trainer.optimizer.state:  # Adam allocates its two moments at the first step
            moments = [torch.ones_like(parameter) for parameter in 2 * trainer.parameters]
        gradients.clear()
        for batch in batches:
            gradients.add(batch, 1.0)
        if gradients.replayed:
            # A batch of another shape runs before its capture, beside the memory of these graphs.
            for batch in batches:
                gradients.compute(batch.to(device), torch.zeros((), device=device))
        del moments
    except RuntimeError as error:
        if isinstance(error, torch._dynamo.exc.TorchDynamoException):
            reason = str(error).strip().splitlines()[0]
            message = f"a layer cannot be compiled: {reason}; --no-compile trains without"
            raise TrainingError(message) from error
        if not is_out_of_memory(error):
            raise
        gradients.forget()
        return False
    finally:
        gradients.clear()
    return True


@contextlib.contextmanager
def explain_out_of_memory(batches: Sequence[Batch], micro_batches: int) -> Iterator[None]:
    """Raise a TrainingError that names the largest of `batches` when memory runs out inside."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(batches, micro_batches) from error


def out_of_memory(batches: Sequence[Batch], micro_batches: int) -> TrainingError:
    """Return the error that names the largest of `batches`."""
    batch = max(batches, key=lambda batch: batch.source.numel() + batch.target_in.numel())
    sentences, source_width = batch.source.shape
    target_width = batch.target_in.shape[1]
    return TrainingError(
        f"out of memory on a micro-batch of {counted(sentences, 'sentence')}, {source_width} "
        f"source and {target_width} target tokens each. An update has {micro_batches} "
        f"micro-batches: try --micro-batches {2 * micro_batches} (the updates stay as large), with "
        "a new --out."
    )
