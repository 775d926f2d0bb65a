"""`nmt train`: builds the parts that the configuration names, introduces them to each other, and lets the trainer
run.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from nmt_cli import checkpoint, registry
from nmt_cli.config import DEFAULT_COMPONENTS, RunConfig, resolve
from nmt_cli.data.batching import BatchPlan, corpus_plan, derived_micro_batches
from nmt_cli.data.corpus import Corpus, read_manifest
from nmt_cli.decoding.validation import translation_scores
from nmt_cli.device import World, check_precision, join_world, product_type
from nmt_cli.errors import UsageError, main_rank_reports
from nmt_cli.flags import IMPORTS_HELP, Command, MoreFlags, Panel
from nmt_cli.interfaces import Task
from nmt_cli.presets import PRESETS
from nmt_cli.registry import argument, option
from nmt_cli.training.costs import CostMeter, memory_estimate, utilisation
from nmt_cli.training.rates import device_rates
from nmt_cli.training.reporter import Reporter
from nmt_cli.training.run_folder import RunFolder
from nmt_cli.training.settings import MAY_CHANGE, TrainingConfig
from nmt_cli.training.trainer import Parts, Trainer
from nmt_cli.training.validation import validate

TYPICAL_LENGTH = 27
"""Tokens of a sentence, EOS included, where no data says: about the mean of WMT14's training text."""


@dataclass(frozen=True)
class TrainOptions:
    """Train a model, or resume a run: the same command again goes on where it stopped."""

    data: Path | None = argument("DATA", "What `nmt prepare` wrote.", None)
    out: Path | None = option(None, "Folder of the run: new, or one to resume.", metavar="RUN")
    preset: str | None = option(None, "A named model; --list-presets shows them.")
    config: Path | None = option(None, "Settings from a TOML or JSON file.")
    list_presets: bool = option(False, "Show the presets with what differs from the base model.")
    dry_run: bool = option(False, "Show the resolved configuration, the parameters and the plan.")
    vocab_size: int | None = option(None, "With --dry-run: count without data.", minimum=5)
    as_json: bool = option(False, "With --dry-run or --list-presets: one JSON object.", names=("--json",))
    verify_resume: bool = option(False, "Train a few steps, kill, resume, compare bit for bit; keep nothing.")
    imports: tuple[str, ...] = option((), IMPORTS_HELP, metavar="MODULE", names=("--import",))


def run(options: TrainOptions, flags: Mapping[str, Any]) -> None:
    """Does what the options ask for: a training, or only a look at one."""
    data, out = options.data, options.out
    if options.vocab_size is not None and not options.dry_run:
        raise UsageError("--vocab-size is for --dry-run; the vocabulary of a training is that of DATA")
    if options.as_json and not (options.dry_run or options.list_presets):
        raise UsageError("--json is for --dry-run and --list-presets; the figures of a training are in metrics.jsonl")
    if options.list_presets:
        show_presets(options.as_json)
    elif options.dry_run:
        show_dry_run(dry_run(data, flags, options.preset, options.config, options.vocab_size), options.as_json)
    elif data is not None and options.verify_resume:
        from nmt_cli.commands import verify_resume

        print(verify_resume.verify_resume(data, out, flags, options.preset, options.config, options.imports))
    elif data is None or out is None:
        raise UsageError(f"{'DATA' if data is None else '--out RUN'} is missing: nmt train DATA --out RUN")
    else:
        train(data, out, flags, options.preset, options.config, options.imports)


def train(
    data: Path,
    out: Path,
    flags: Mapping[str, Any],
    preset: str | None,
    config_file: Path | None,
    imports: Sequence[str],
) -> None:
    """Trains on the prepared folder `data` into the run's folder `out`, or goes on where an earlier start stopped."""
    with main_rank_reports():
        config = resolve(TrainingConfig, flags, preset=preset, file=config_file)
    settings: TrainingConfig = config.training
    with join_world(settings.device, settings.timeout_minutes) as world:
        set_determinism(settings)
        task, corpus, valid = open_data(data)
        run = RunFolder(out)
        reporter = Reporter(settings.max_steps, world.is_main)
        try:
            about = description(config, task, corpus)
            # Before the claim: a model that cannot be built leaves no folder behind.
            parts = build_parts(config, task, corpus, valid, world)
            check_validation(settings, flags, valid is not None, data)
            check_shares(parts.plan.micro_batches, world.size, reporter.note)
            check_precision(world.device, settings.precision, reporter.note)
            if world.is_main:
                whole = {**config.to_json(), "data": corpus.fingerprint, "imports": list(imports)}
                run.claim(whole, MAY_CHANGE, about["run"], defaults(config))
            world.barrier()
            trainer = Trainer(parts, settings, world, run, reporter, about)
            start_or_resume(trainer, config)
        finally:
            run.release()


def start_or_resume(trainer: Trainer, config: RunConfig) -> None:
    """Trains from where the run stands to its end, and says what is about to happen and what came of it."""
    resumed = trainer.resume()
    done = trainer.finished()
    if done:
        trainer.reporter.note(f"already at step {trainer.progress.step:,} of {config.training.max_steps:,}; {done}")
        trainer.save(trainer.run.folder_of(trainer.progress.step))  # where a signal came, and this is the end now
        if trainer.run.summarised_step() == trainer.progress.step:
            return
    else:
        if not resumed:
            trainer.reporter.note(plan_line(config, trainer.parts, trainer.world))
        trainer.fit()
    figures = summary(trainer)
    if trainer.world.is_main:
        trainer.run.write_summary(figures)
    trainer.reporter.summarise(figures)
    trainer.reporter.note(closing_line(trainer))


def dry_run(
    data: Path | None,
    flags: Mapping[str, Any],
    preset: str | None,
    config_file: Path | None,
    vocabulary_size: int | None,
) -> dict[str, Any]:
    """The resolved configuration, the parameter count and the plan; trains nothing and writes nothing.

    Raises:
        UsageError: neither data nor a vocabulary size is given.
    """
    config = resolve(TrainingConfig, flags, preset=preset, file=config_file)
    plan = None
    result: dict[str, Any] = {"preset": preset, "config": config.to_json()}
    if data is not None:
        task, corpus, _ = open_data(data)
        sizes = (task.source_vocabulary_size, task.target_vocabulary_size, task.shared_vocabulary)
        plan = corpus_plan(corpus, config.training.batch_tokens, config.training.micro_batches, config.training.seed)
        result |= plan_figures(plan, config.training)
    elif vocabulary_size is not None:
        sizes = (vocabulary_size, vocabulary_size, True)
    else:
        raise UsageError("--dry-run needs DATA, or --vocab-size to count a model's parameters without data")
    with torch.device("meta"):
        model = build_model(config, *sizes)
    result["vocabulary"] = {"source": sizes[0], "target": sizes[1], "shared": sizes[2]}
    result["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    schedule = registry.build(config["schedule"], d_model=config["model"].d_model)
    result["peak_learning_rate"] = max(map(schedule, range(1, min(config.training.max_steps, 100_000) + 1)))
    result |= requirements(model, registry.build(config["criterion"]), config.training, plan)
    return result


def requirements(model: Any, criterion: Any, settings: TrainingConfig, plan: BatchPlan | None) -> dict[str, Any]:
    """Operations and memory of one update; without data, for sentences of `TYPICAL_LENGTH` tokens."""
    if plan is None:
        count = max(1, settings.batch_tokens // TYPICAL_LENGTH)
        source = target = np.full(count, TYPICAL_LENGTH)
        micro_batches = settings.micro_batches or derived_micro_batches(settings.batch_tokens)
        sizes = [(-(-count // micro_batches), TYPICAL_LENGTH, TYPICAL_LENGTH)]
    else:
        epoch = plan.epoch(0)
        indices = np.concatenate(epoch[0])
        source, target = plan.source_lengths[indices], plan.target_lengths[indices]
        sizes = [
            (len(part), int(plan.source_lengths[part].max()), int(plan.target_lengths[part].max()))
            for update in epoch
            for part in update
        ]
    on_gpu = settings.device.startswith("cuda") or (settings.device == "auto" and torch.cuda.is_available())
    low = product_type("cuda" if on_gpu else "cpu", settings.precision) == torch.bfloat16
    figures: dict[str, Any] = {
        "memory_estimate_bytes": memory_estimate(model, criterion, sizes, low=low, on_gpu=on_gpu)
    }
    if hasattr(model, "training_flops"):
        by_part = model.training_flops(source, target)
        figures["training_step_flops"] = {
            "total": sum(by_part.values()),
            "by_part": by_part,
            "source_tokens": int(source.sum()),
            "target_tokens": int(target.sum()),
        }
    return figures


def open_data(data: Path) -> tuple[Task, Corpus, Corpus | None]:
    """Task, training corpus and validation corpus (where there is one): unchanged since `nmt prepare` wrote them,
    and their ids in the vocabularies.
    """
    splits = read_manifest(data).get("splits")
    task = checkpoint.load_task(data / checkpoint.TASK)
    corpora = [Corpus.open(data, split) for split in ("train", "valid") if isinstance(splits, dict) and split in splits]
    if not corpora or corpora[0].split != "train" or not len(corpora[0]):
        raise UsageError(f"{data}: holds no training text; run nmt prepare with --train PREFIX")
    for corpus in corpora:
        corpus.verify()
        corpus.check(task.source_vocabulary_size, task.target_vocabulary_size)
    return task, corpora[0], corpora[1] if len(corpora) > 1 and len(corpora[1]) else None


def check_validation(settings: TrainingConfig, flags: Mapping[str, Any], possible: bool, data: Path) -> None:
    """Raises UsageError where somebody counts on validations that cannot be.

    `--validate-every` counts where it was given: presets have one, too.
    """
    wanted = {
        "--patience": settings.patience is not None,
        "--validation-bleu": settings.validation_bleu,
        "--validate-every": flags.get("validate_every") is not None,
    }
    found = [flag for flag, given in wanted.items() if given]
    if found and not possible:
        raise UsageError(
            f"{' and '.join(found)}: {data} holds no validation text; leave {'it' if len(found) == 1 else 'them'} out, "
            "or run nmt prepare with --valid PREFIX"
        )


def check_shares(micro_batches: int, processes: int, note: Callable[[str], None]) -> None:
    """Raises UsageError where some processes would never have anything to do; `note` hears where some have less."""
    fitting = -(-micro_batches // processes) * processes
    if processes > micro_batches:
        raise UsageError(
            f"{processes} processes are to share the {micro_batches} micro-batches of an update: some would have "
            f"nothing to do. Start fewer, or a new run with --micro-batches {fitting} (or another multiple of "
            f"{processes})"
        )
    if micro_batches % processes:
        note(
            f"warning: {processes} processes share the {micro_batches} micro-batches of an update, so that some wait "
            f"for others; a new run with --micro-batches {fitting} would not"
        )


def build_model(
    config: RunConfig, source_vocabulary_size: int, target_vocabulary_size: int, shared_vocabulary: bool
) -> Any:
    """The configured model with fresh weights."""
    return registry.build(
        config["model"],
        attention=config["attention"],
        source_vocabulary_size=source_vocabulary_size,
        target_vocabulary_size=target_vocabulary_size,
        shared_vocabulary=shared_vocabulary,
    )


def build_parts(config: RunConfig, task: Task, corpus: Corpus, valid: Corpus | None, world: World) -> Parts:
    """Everything that the trainer drives. The seed fixes the weights."""
    settings: TrainingConfig = config.training
    torch.manual_seed(settings.seed)
    sizes = (task.source_vocabulary_size, task.target_vocabulary_size, task.shared_vocabulary)
    try:
        model = build_model(config, *sizes).to(world.device)
    except (RuntimeError, OverflowError) as error:  # sizes that no memory holds
        raise UsageError(f"this model cannot be built: {str(error).splitlines()[0]}; make it smaller") from error
    criterion = registry.build(config["criterion"])
    return Parts(
        model=model,
        criterion=criterion,
        optimizer=registry.build(config["optimizer"], parameters=model.parameters()),
        schedule=registry.build(config["schedule"], d_model=config["model"].d_model),
        task=task,
        corpus=corpus,
        plan=corpus_plan(corpus, settings.batch_tokens, settings.micro_batches, settings.seed),
        costs=CostMeter(
            device_rates(world.device, settings.precision, settings.sustained_tflops, settings.peak_tflops), world.size
        ),
        flops=getattr(model, "training_flops", None),
        validate=None if valid is None else validation(model, criterion, task, valid, world, settings),
    )


def validation(
    model: Any, criterion: Any, task: Task, valid: Corpus, world: World, settings: TrainingConfig
) -> Callable[[], dict[str, float]]:
    """What the trainer calls to validate: loss and perplexity, and the task's scores where they are asked for."""

    def figures() -> dict[str, float]:
        values = validate(model, criterion, valid, world, settings.precision)
        if settings.validation_bleu and world.is_main:
            values |= translation_scores(model, task, valid, world.device, settings.precision)
        return values

    return figures


def description(config: RunConfig, task: Task, corpus: Corpus) -> dict[str, Any]:
    """What every checkpoint of the run says of its model, but the step."""
    sections = config.to_json()
    learned = {kind: section for kind, section in sections.items() if kind != "training"}
    fixed = {name: value for name, value in sections["training"].items() if name not in MAY_CHANGE}
    return {
        "sections": {**learned, "training": fixed},
        "source_vocabulary_size": task.source_vocabulary_size,
        "target_vocabulary_size": task.target_vocabulary_size,
        "shared_vocabulary": task.shared_vocabulary,
        "run": checkpoint.fingerprint({**learned, "training": fixed, "data": corpus.fingerprint}),
    }


def defaults(config: RunConfig) -> dict[str, dict[str, Any]]:
    """What the fields of each section are unless somebody says otherwise."""
    return {
        section: {field.name: field.default for field in dataclasses.fields(settings)}
        for section, settings in {"training": config.training, **config.components}.items()
    }


def set_determinism(settings: TrainingConfig) -> None:
    """Where asked for, kernels that give the same bits every time."""
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS cannot promise equal bits
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False


def plan_figures(plan: BatchPlan, settings: TrainingConfig) -> dict[str, Any]:
    """How the corpus falls into updates."""
    updates = plan.epoch(0)
    tokens = sum(plan.target_tokens(update) for update in updates)
    return {
        "sentences": len(plan.source_lengths),
        "updates_per_epoch": len(updates),
        "target_tokens_per_update": tokens / len(updates),
        "micro_batches": plan.micro_batches,
        "epochs": settings.max_steps / len(updates),
    }


def plan_line(config: RunConfig, parts: Parts, world: World) -> str:
    """What is about to happen, in one line."""
    count = sum(parameter.numel() for parameter in parts.model.parameters())
    return (
        f"{count:,} parameters; {len(parts.corpus):,} sentence pairs; {parts.plan.batch_tokens:,} tokens an update "
        f"in {parts.plan.micro_batches} micro-batch{'es' if parts.plan.micro_batches > 1 else ''} on {world.size} "
        f"process{'es' if world.size > 1 else ''} "
        f"({world.device.type}); "
        f"{config.training.max_steps:,} steps"
    )


def summary(trainer: Trainer) -> dict[str, Any]:
    """The whole run in figures; its cost as Table 2 counts it, and as counted from the model's shapes."""
    progress = trainer.progress
    return {
        "steps": progress.step,
        "parameters": sum(parameter.numel() for parameter in trainer.parameters),
        "target_tokens": progress.target_tokens,
        "training_hours": progress.training_seconds / 3600,
        "target_tokens_per_second": progress.target_tokens / max(progress.training_seconds, 1e-9),
        "peak_learning_rate": max(map(trainer.parts.schedule, range(1, progress.step + 1))),
        "best_validation_loss": progress.best_loss,
        "best_step": progress.best_step,
        "skipped_updates": progress.skipped,
        "flops": progress.flops or None,
        "flops_as_table2": progress.spent.flops_as_table2,
        "model_flop_utilisation": utilisation(progress.flops, progress.spent),
        **trainer.parts.costs.describe(progress.spent),
    }


def closing_line(trainer: Trainer) -> str:
    """Where the result lies, and what to type next."""
    progress, run = trainer.progress, trainer.run
    best = (
        ""
        if progress.best_loss is None
        else f"; best validation loss {progress.best_loss:.3f} at step {progress.best_step:,} ({run.path / 'best'})"
    )
    return (
        f"finished at step {progress.step:,} after {progress.training_seconds / 60:.1f} minutes of training{best}\n"
        f"next: nmt average {run.path} --last {min(5, len(checkpoint.checkpoints_of(run.path)))} --out "
        f"{run.path / 'averaged'}"
    )


def show_presets(as_json: bool) -> None:
    """Prints the presets with what differs from the base model: a table, or one JSON object by name."""
    if as_json:
        print(
            json.dumps(
                {name: {"about": preset.about, "differs": preset.differs} for name, preset in PRESETS.items()}, indent=2
            )
        )
        return
    table = Table("preset", "what it is", "differs from transformer_base")
    for name, preset in PRESETS.items():
        table.add_row(name, preset.about, " ".join(f"{key}={value}" for key, value in preset.differs.items()))
    Console().print(table)


def show_dry_run(figures: Mapping[str, Any], as_json: bool) -> None:
    """Prints what `dry_run` found: one JSON object, or a table."""
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    console = Console()
    table = Table("setting", "value", title="resolved configuration")
    for section, values in figures["config"].items():
        for name, value in values.items():
            table.add_row(f"{section}.{name}", str(value))
    console.print(table)
    for name, value in figures.items():
        if name not in ("config", "preset"):
            console.print(
                f"{name.replace('_', ' ')}: {value:,}"
                if isinstance(value, int)
                else f"{name.replace('_', ' ')}: {value}",
                highlight=False,
            )


def _component_flags(imports: Sequence[str]) -> MoreFlags:
    """The flags of the training loop and of every registered component."""
    registry.discover(imports)
    panels = [Panel("training", TrainingConfig, "training")]
    for kind in DEFAULT_COMPONENTS:
        panels += [Panel(f"{kind} {component.name}", component.config, kind) for component in registry.components(kind)]
    return MoreFlags(panels, {kind: registry.names(kind) for kind in DEFAULT_COMPONENTS})


command = Command(
    TrainOptions,
    run,
    _component_flags,
    examples=[
        "nmt train data --out run",
        "nmt train data --out run --preset transformer_big --micro-batches 16",
        "nmt train data --out run --num-layers 3 --d-model 256 --num-heads 4 --max-steps 20000",
        "nmt train data --dry-run --preset transformer_base",
        "nmt train data --out run --import my_module --optimizer my_optimizer",
    ],
)
