"""`nmt train --dry-run`: the configuration, the size and, by annexes, the cost of a training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from nmt_cli import checkpoint, registry
from nmt_cli.config import RunConfig
from nmt_cli.distributed import World, own_device
from nmt_cli.errors import UsageError
from nmt_cli.streams import say
from nmt_cli.training.length import highest_rate
from nmt_cli.training.messages import advice, parameters_of
from nmt_cli.training.origin import origin_of
from nmt_cli.training.reporter import figures_table, readable, table
from nmt_cli.training.run import Run
from nmt_cli.training.settings import RunOptions, TrainingConfig
from nmt_cli.training.start import (
    build_run,
    configuration,
    model_without_weights,
    open_data,
    prepared,
)


@dataclass(frozen=True)
class Planned:
    """A training that is not started."""

    config: RunConfig
    model: Any
    steps: int
    run: Run | None  # None without data: then the model is on the meta device
    figures: dict[str, Any]


def dry_run(
    options: RunOptions,
    flags: Mapping[str, Any],
    vocab_size: int | None,
    processes: int,
    as_json: bool,
) -> None:
    """Show the resolved configuration and the figures of a training.

    Entry points of `nmt.dry_run` are functions of the plan and the number of processes. They return
    more figures for JSON, and for the table.
    """
    plan = planned(options, flags, vocab_size)
    rows_of_training = dict(plan.figures)
    del rows_of_training["preset"], rows_of_training["config"]
    for function in registry.entries("nmt.dry_run"):
        figures, rows = function(plan, processes)
        plan.figures.update(figures)
        rows_of_training |= rows
    if as_json:
        print(json.dumps(plan.figures, indent=2))
        return
    settings = []
    for section, values in plan.figures["config"].items():
        for name, value in values.items():
            text = str(value) if type(value) in (str, int, float) else readable(value)
            settings.append((f"{section}.{name}", text))
    # A setting may have brackets, such as a pattern of --freeze.
    console = Console(markup=False, emoji=False)
    console.print(table(("setting", "value"), settings, "resolved configuration"))
    console.print(figures_table("the training", rows_of_training))


def planned(
    options: RunOptions, flags: Mapping[str, Any], vocab_size: int | None = None
) -> Planned:
    """Return a training with its configuration and its figures, and print its warnings.

    Raises:
        UsageError: there are neither data nor `vocab_size`.
    """
    config = configuration(options, flags)
    settings: TrainingConfig = config.training
    device = own_device(settings.device)
    figures: dict[str, Any] = {"preset": options.preset, "config": config.to_json()}
    run = None
    if options.data:
        task, corpus, _ = open_data(options.data)
        origin = origin_of(None, options.init_from, config, task)
        run = build_run(config, task, corpus, None, World(0, 1, device), origin, Path(), quiet=True)
        model = run.model
        schedule = run.trainer.schedule
        steps = run.length.steps
        figures |= {
            "sentences": len(corpus),
            "updates_per_epoch": run.length.updates_per_epoch,
            "target_tokens_per_update": run.length.target_tokens_per_update,
            "micro_batches": run.trainer.updates.micro_batches,
            "steps": steps,
            "epochs": run.length.epochs,
            "device": str(device),
            **checkpoint.vocabulary_of(task),
        }
    elif vocab_size is not None:
        vocabulary = {
            "source_vocabulary_size": vocab_size,
            "target_vocabulary_size": vocab_size,
            "shared_vocabulary": True,
        }
        figures |= vocabulary
        model = model_without_weights(config, vocabulary)
        prepared(model, config)
        schedule = registry.build(config["schedule"], d_model=config["model"].d_model)
        steps = settings.max_steps
    else:
        raise UsageError("--dry-run needs DATA, or --vocab-size to count without data")
    figures["peak_learning_rate"] = highest_rate(schedule, steps)
    figures["parameters"], figures["trained_parameters"] = parameters_of(model)
    for note in advice(config, options.preset, schedule, steps, run):
        say(note)
    return Planned(config, model, steps, run, figures)
