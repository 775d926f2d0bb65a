"""`nmt train --dry-run`: the configuration, the size and the cost of a training."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Column, Table

from nmt_cli import checkpoint, registry
from nmt_cli.config import RunConfig
from nmt_cli.distributed import World, divide, own_device
from nmt_cli.errors import UsageError
from nmt_cli.interfaces import CountsFlops
from nmt_cli.streams import say
from nmt_cli.training.freezing import freeze, trained
from nmt_cli.training.gradients import Gradients
from nmt_cli.training.length import highest_rate
from nmt_cli.training.memory import fitting_micro_batches
from nmt_cli.training.messages import parameters_of, peak_warnings, schedule_warnings, warnings
from nmt_cli.training.new_vocabulary import model_without_weights
from nmt_cli.training.optimizer_state import dump
from nmt_cli.training.origin import read_origin
from nmt_cli.training.reporter import figures_table, readable
from nmt_cli.training.settings import Interval, RunOptions, TrainingConfig
from nmt_cli.training.setup import Setup
from nmt_cli.training.start import build_setup, configuration, open_data

TYPICAL_LENGTH = 27
"""Tokens of a sentence, EOS included, where there is no data: about the mean of WMT14's training text."""


def dry_run(
    options: RunOptions, flags: Mapping[str, Any], vocab_size: int | None = None, processes: int = 1
) -> dict[str, Any]:
    """Return the resolved configuration and the figures of the training; with data, run its largest micro-batch.

    `vocab_size` is used without data. The memory is that of one of so many `processes`.
    """
    config = configuration(options, flags)
    settings: TrainingConfig = config.training
    device = own_device(settings.device)
    figures: dict[str, Any] = {"preset": options.preset, "config": config.to_json()}
    if options.data:
        task, corpus, _ = open_data(options.data)
        path = options.init_from
        origin = None if path is None else read_origin(path, config, task, options.new_vocabulary)
        setup = build_setup(config, task, corpus, None, World(0, 1, device), origin)
        figures |= figures_of_data(setup) | checkpoint.vocabulary_of(task)
        model, schedule, steps = setup.model, setup.schedule, setup.length.steps
        notes = warnings(setup, origin is not None)
        first = next(setup.plan.epoch(setup.plan.growth - 1))
        lengths = setup.plan.source_lengths[first], setup.plan.target_lengths[first]
    elif vocab_size is not None:
        vocabulary = dict(zip(checkpoint.VOCABULARY, (vocab_size, vocab_size, True), strict=True))
        figures |= vocabulary
        model, steps = model_without_weights(config, vocabulary), settings.max_steps
        freeze(model, settings.freeze)
        schedule = registry.build(config["schedule"], d_model=config["model"].d_model)
        notes = schedule_warnings(schedule, steps)
        sentences = max(1, settings.batch_tokens // TYPICAL_LENGTH)
        lengths = 2 * (np.full(min(sentences, settings.batch_sentences or sentences), TYPICAL_LENGTH),)
    else:
        raise UsageError("--dry-run needs DATA, or --vocab-size to count without data")
    figures["peak_learning_rate"] = highest_rate(schedule, steps)
    figures["parameters"], figures["trained_parameters"] = count, learning = parameters_of(model)
    size = checkpoint_bytes(config, count, learning)
    figures |= {"checkpoint_bytes": size, "disk_bytes": size * checkpoints_on_disk(settings, steps)}
    figures["bytes_per_process"] = bytes_per_process(config, model, processes)
    for note in [*notes, *peak_warnings(config, options.preset)]:
        say(note)
    if isinstance(model, CountsFlops) and not settings.freeze:
        by_part = model.training_flops(*lengths)
        figures["training_step_flops"] = {"total": sum(by_part.values()), "by_part": by_part}
    return figures


def figures_of_data(setup: Setup) -> dict[str, Any]:
    say("running the largest micro-batch ...")
    length, device = setup.length, setup.world.device
    return {
        "sentences": len(setup.corpus),
        "updates_per_epoch": length.updates_per_epoch,
        "target_tokens_per_update": length.target_tokens_per_update,
        "micro_batches": fitting_micro_batches(setup, Gradients(setup), setup.micro_batches),
        "steps": length.steps,
        "epochs": length.epochs,
        "device": str(device),
        "peak_memory_bytes": peak_memory(device),
    }


def bytes_per_process(config: RunConfig, model: Any, processes: int) -> int:
    """Return the size of the weights, their gradients and the optimizer's state in one of so many processes."""
    if config.training.model_parallel:
        divide(model, World(0, processes, torch.device("meta")))
    count, learning = (sum(p.numel() for p in each) for each in (model.parameters(), trained(model)))
    return checkpoint_bytes(config, count, learning) + 4 * learning


def checkpoint_bytes(config: RunConfig, parameters: int, learning: int) -> int:
    """Return the size of a checkpoint: the float32 weights, perhaps also their average, and the optimizer's state."""
    sample = torch.nn.Parameter(torch.zeros(1000))  # on which the optimizer is tried
    sample.grad = torch.zeros_like(sample)
    optimizer = registry.build(config["optimizer"], parameters=[sample])
    optimizer.step()
    state = sum(tensor.nbytes for tensor in dump(optimizer)[1].values() if tensor.numel() > 1)
    weights = 2 if config.training.ema_decay else 1
    return weights * sample.element_size() * parameters + state * learning // sample.numel()


def checkpoints_on_disk(settings: TrainingConfig, steps: int) -> int:
    """Return the largest number of checkpoints at once: those kept, the one being written, and the best."""
    every = Interval(settings.save_every, "--save-every")
    written = settings.keep_last + 1 if every.is_minutes else -(-steps // every.number)
    return min(settings.keep_last + 1, written) + 1


def peak_memory(device: torch.device) -> int:
    """Return bytes: the memory of PyTorch on a GPU, of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def show(figures: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    console = Console(markup=False, emoji=False)  # a setting may have brackets, such as a pattern of --freeze
    table = Table("setting", Column("value", overflow="fold"), title="resolved configuration")
    for section, values in figures["config"].items():
        for name, value in values.items():
            table.add_row(f"{section}.{name}", str(value) if type(value) in (str, int, float) else readable(value))
    console.print(table)
    shown = {name: value for name, value in figures.items() if name not in ("preset", "config")}
    if "training_step_flops" in shown:
        shown["training_step_flops"] = shown["training_step_flops"]["total"]
    if "peak_memory_bytes" in shown:
        of = "" if shown["device"].startswith("cuda") else " (of the whole process)"
        shown["peak_memory"] = f"{shown.pop('peak_memory_bytes') / 1e9:.2f} GB{of}"
    shown["memory_of_a_process"] = f"{shown.pop('bytes_per_process') / 1e9:.2f} GB without activations"
    each, disk = (shown.pop(name) / 1e9 for name in ("checkpoint_bytes", "disk_bytes"))
    shown["disk_space"] = f"at most {disk:.2g} GB (a checkpoint: {each:.2g} GB)"
    console.print(figures_table("the training", shown))
