"""The cost of a training: the second half of `nmt train --dry-run`."""

from __future__ import annotations

import resource
import sys
from typing import Any

import numpy as np
import torch

from nmt_cli import registry
from nmt_cli.commands.dry_run import Planned
from nmt_cli.config import RunConfig
from nmt_cli.data.corpus import Indices
from nmt_cli.distributed import World, divide
from nmt_cli.streams import say
from nmt_cli.training.costs import flops_of_update
from nmt_cli.training.gradients import trained
from nmt_cli.training.memory import fitting_micro_batches
from nmt_cli.training.messages import parameters_of
from nmt_cli.training.optimizer_state import dump
from nmt_cli.training.settings import TrainingConfig

# Tokens of a sentence, EOS included, where there is no data: about the mean of WMT14's text.
TYPICAL_LENGTH = 27


def cost(planned: Planned, processes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of memory, disk space and FLOPs, for JSON and for a table.

    The memory is for one of so many `processes`. With data, the largest micro-batch is run.
    """
    config = planned.config
    count, learning = parameters_of(planned.model)
    figures: dict[str, Any] = {}
    readable: dict[str, Any] = {}
    if planned.run is not None:
        say("running the largest micro-batch ...")
        trainer = planned.run.trainer
        device = planned.run.world.device
        figures["micro_batches"] = fitting_micro_batches(trainer, trainer.updates.micro_batches)
        peak = peak_memory(device)
        figures["peak_memory_bytes"] = peak
        readable["peak_memory"] = f"{peak / 1e9:.2f} GB"
        if device.type != "cuda":
            readable["peak_memory"] += " (of the whole process)"
    size = checkpoint_bytes(config, count, learning)
    disk = size * checkpoints_on_disk(config.training, planned.steps)
    memory = bytes_per_process(config, planned.model, processes)
    figures |= {"checkpoint_bytes": size, "disk_bytes": disk, "bytes_per_process": memory}
    readable["memory_of_a_process"] = f"{memory / 1e9:.2f} GB without activations"
    readable["disk_space"] = f"at most {disk / 1e9:.2g} GB (a checkpoint: {size / 1e9:.2g} GB)"
    by_part = flops_of_update(planned.model, lengths_of_update(planned))
    if by_part:
        total = sum(by_part.values())
        figures["training_step_flops"] = {"total": total, "by_part": by_part}
        readable["training_step_flops"] = total
    return figures, readable


def lengths_of_update(planned: Planned) -> tuple[Indices, Indices]:
    """Return the source and the target lengths of an update of full size."""
    if planned.run is not None:
        plan = planned.run.plan
        sentences = next(plan.epoch(plan.full_epoch()))
        return plan.source_lengths[sentences], plan.target_lengths[sentences]
    settings: TrainingConfig = planned.config.training
    count = max(1, settings.batch_tokens // TYPICAL_LENGTH)
    if settings.batch_sentences is not None:
        count = min(count, settings.batch_sentences)
    lengths = np.full(count, TYPICAL_LENGTH)
    return lengths, lengths


def bytes_per_process(config: RunConfig, model: Any, processes: int) -> int:
    """Return the size of weights, gradients and optimizer's state in one of so many processes."""
    if config.training.model_parallel:
        divide(model, World(0, processes, torch.device("meta")))
    count = sum(parameter.numel() for parameter in model.parameters())
    learning = sum(parameter.numel() for parameter in trained(model))
    gradients = 4 * learning
    return checkpoint_bytes(config, count, learning) + gradients


def checkpoint_bytes(config: RunConfig, parameters: int, learning: int) -> int:
    """Return the size of a checkpoint: the weights, their copies, and the optimizer's state."""
    sample = torch.nn.Parameter(torch.zeros(1000))  # on which the optimizer is tried
    sample.grad = torch.zeros_like(sample)
    optimizer = registry.build(config["optimizer"], parameters=[sample])
    optimizer.step()
    _, tensors = dump(optimizer)
    state = sum(tensor.nbytes for tensor in tensors.values() if tensor.numel() > 1)
    copies = 1
    for observer in config.used("observer"):  # a moving average has other weights
        copies += getattr(observer, "copies_of_weights", 0)
    return copies * sample.element_size() * parameters + state * learning // sample.numel()


def checkpoints_on_disk(settings: TrainingConfig, steps: int) -> int:
    """Return the largest number of checkpoints at once, with the best and the one being written."""
    every, _ = settings.intervals()
    most = settings.keep_last + 1
    if not every.is_minutes:
        written = -(-steps // every.number)
        most = min(most, written)
    return most + 1


def peak_memory(device: torch.device) -> int:
    """Return bytes: the memory of PyTorch on a GPU, of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak
    return 1024 * peak
