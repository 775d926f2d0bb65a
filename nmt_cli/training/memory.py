"""Micro-batches that fit into the memory of a GPU, found before the first update."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

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
    """Return `count`, doubled until the largest micro-batches fit into memory, unless
    --micro-batches is given.

    Raises:
        TrainingError: there is not enough memory, and the message names the micro-batch; or a layer
            cannot be compiled.
    """
    check_state(trainer)
    while True:
        batches = largest(trainer.updates, count)
        # This compiles the layers, in a resumed run as in a new one, so that both compute with the
        # same code.
        full = not fits(trainer, batches)
        if full and (
            trainer.config.micro_batches or max(len(batch.source) for batch in batches) == 1
        ):
            raise out_of_memory(batches, count)
        if not trainer.world.start_any([full])()[0]:
            return count
        count *= 2


def check_state(trainer: Trainer) -> None:
    """Raise TrainingError unless gradients and Adam's two moments fit. Smaller batches would not
    help.
    """
    parameters = trainer.parameters
    try:
        _ = [
            torch.empty_like(parameter)
            for parameter in (parameters if trainer.optimizer.state else 3 * parameters)
        ]
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            "out of memory: the weights, their gradients and the optimizer's state do not fit into "
            "this GPU; "
            "choose a smaller model"
        ) from error


def largest(updates: Updates, count: int) -> list[Batch]:
    """Return the micro-batches of the first updates, a random sample of the data, that need most
    memory.
    """
    plan = updates.plan
    candidates = []
    for *_, samples in plan.samples(SAMPLED_UPDATES):
        for update in samples:
            lengths = plan.source_lengths[update], plan.target_lengths[update]
            candidates += [
                update[places] for places in cut(*lengths, count, updates.packed) if len(places)
            ]

    def longest(indices: Indices) -> Indices:
        return np.array([plan.source_lengths[indices].max(), plan.target_lengths[indices].max()])

    # In bins, hidden states grow with the tokens, and attention weights with the width.
    sizes: list[Callable[[Indices], int]] = [
        lambda indices: int(
            plan.source_lengths[indices].sum() + plan.target_lengths[indices].sum()
        ),
        lambda indices: int(longest(indices).max()),
    ]
    if not updates.packed:  # with the padded length, and with its square
        sizes = [
            lambda indices: len(indices) * int(longest(indices).sum()),
            lambda indices: len(indices) * int((longest(indices) ** 2).sum()),
        ]
    batches = []
    for size in sizes:
        sentences = max(candidates, key=size)
        pairs, places = updates.text(0, sentences), np.arange(len(sentences))
        batches.append(updates.load(pairs, places))
    return batches


def fits(trainer: Trainer, batches: Sequence[Batch]) -> bool:
    """Return whether there is enough memory to run `batches` forwards and backwards, without an
    update.
    """
    gradients = trainer.gradients
    try:
        # Stand-ins for Adam's two moments, which are allocated at the first step.
        moments = (
            [] if trainer.optimizer.state else [torch.ones_like(p) for p in 2 * trainer.parameters]
        )
        gradients.clear()
        for batch in batches:
            gradients.add(batch, 1.0)
        for batch in batches if gradients.replayed else []:
            # So another shape runs before its capture, beside the memory of these graphs.
            device = trainer.world.device
            gradients.compute(batch.to(device), torch.zeros((), device=device))
        del moments
    except RuntimeError as error:
        if isinstance(error, torch._dynamo.exc.TorchDynamoException):
            reason = str(error).strip().splitlines()[0]
            raise TrainingError(
                f"a layer cannot be compiled: {reason}; --no-compile trains without"
            ) from error
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
    batch = max(batches, key=lambda batch: batch.source.numel() + batch.target_in.numel())
    source, target = batch.source.shape[1], batch.target_in.shape[1]
    return TrainingError(
        f"out of memory on a micro-batch of {counted(len(batch.source), 'sentence')}, {source} "
        f"source and {target} "
        f"target tokens each. An update has {micro_batches} micro-batches: try --micro-batches "
        f"{2 * micro_batches} "
        "(the updates stay as large), with a new --out."
    )
