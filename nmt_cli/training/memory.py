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
from nmt_cli.training.gradients import Gradients, trained
from nmt_cli.training.run import Run
from nmt_cli.training.setup import Setup
from nmt_cli.training.updates import text_of

SAMPLED_UPDATES = 1000  # updates among which the largest micro-batches are looked for


def choose_micro_batches(run: Run, gradients: Gradients) -> int:
    """Record and return the number of micro-batches: that with which as many ranks began, or else one that fits."""
    state, world = run.state, run.world
    recorded = state.micro_batches if state.ranks == world.size else 0
    count = wanted = recorded or run.setup.micro_batches
    # One rank that is out of memory would leave the others of a divided model waiting.
    if run.setup.fast.tries_memory and not run.config.model_parallel:
        count = fitting_micro_batches(run.setup, gradients, wanted)
    if count > wanted:
        run.reporter.note(f"the GPU's memory is too small for larger micro-batches: {count} an update")
    state.ranks, state.micro_batches = world.size, count
    return count


def fitting_micro_batches(setup: Setup, gradients: Gradients, count: int) -> int:
    """Return `count`, doubled until the largest micro-batches fit into memory, unless --micro-batches is given.

    Raises:
        TrainingError: there is not enough memory, and the message names the micro-batch; or a layer cannot be compiled.
    """
    check_state(setup)
    while True:
        batches = largest(setup, count)
        # This compiles the layers, in a resumed run as in a new one, so that both compute with the same code.
        full = not fits(setup, gradients, batches)
        if full and (setup.settings.micro_batches or max(len(batch.source) for batch in batches) == 1):
            raise out_of_memory(batches, count)
        if not setup.world.start_any([full])()[0]:
            return count
        count *= 2


def check_state(setup: Setup) -> None:
    """Raise TrainingError unless gradients and Adam's two moments fit. Smaller batches would not help."""
    parameters = trained(setup.model)
    try:
        _ = [torch.empty_like(parameter) for parameter in (parameters if setup.optimizer.state else 3 * parameters)]
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            "out of memory: the weights, their gradients and the optimizer's state do not fit into this GPU; "
            "choose a smaller model"
        ) from error


def largest(setup: Setup, count: int) -> list[Batch]:
    """Return the micro-batches of the first updates, a random sample of the data, that need most memory."""
    plan = setup.plan
    candidates = []
    for *_, updates in plan.samples(SAMPLED_UPDATES):
        for update in updates:
            lengths = plan.source_lengths[update], plan.target_lengths[update]
            candidates += [update[places] for places in cut(*lengths, count, setup.packed) if len(places)]

    def longest(indices: Indices) -> Indices:
        return np.array([plan.source_lengths[indices].max(), plan.target_lengths[indices].max()])

    # In bins, hidden states grow with the tokens, and attention weights with the width.
    sizes: list[Callable[[Indices], int]] = [
        lambda indices: int(plan.source_lengths[indices].sum() + plan.target_lengths[indices].sum()),
        lambda indices: int(longest(indices).max()),
    ]
    if not setup.packed:  # with the padded length, and with its square
        sizes = [
            lambda indices: len(indices) * int(longest(indices).sum()),
            lambda indices: len(indices) * int((longest(indices) ** 2).sum()),
        ]
    batches = []
    for size in sizes:
        sentences = max(candidates, key=size)
        pairs, places = text_of(setup, 0, sentences), np.arange(len(sentences))
        batches.append(setup.load(pairs, places))
    return batches


def fits(setup: Setup, gradients: Gradients, batches: Sequence[Batch]) -> bool:
    """Return whether there is enough memory to run `batches` forwards and backwards, without an update."""
    try:
        # Stand-ins for Adam's two moments, which are allocated at the first step.
        moments = [] if setup.optimizer.state else [torch.ones_like(p) for p in 2 * trained(setup.model)]
        gradients.clear()
        for batch in batches:
            gradients.add(batch, 1.0)
        for batch in batches if gradients.replayed else []:
            # So another shape runs before its capture, beside the memory of these graphs.
            gradients.compute(batch.to(setup.world.device), torch.zeros((), device=setup.world.device))
        del moments
    except RuntimeError as error:
        if isinstance(error, torch._dynamo.exc.TorchDynamoException):
            reason = str(error).strip().splitlines()[0]
            raise TrainingError(f"a layer cannot be compiled: {reason}; --no-compile trains without") from error
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
        f"out of memory on a micro-batch of {counted(len(batch.source), 'sentence')}, {source} source and {target} "
        f"target tokens each. An update has {micro_batches} micro-batches: try --micro-batches {2 * micro_batches} "
        "(the updates stay as large), with a new --out."
    )
