"""The start of a run: its settings, its data, and everything that a training consists of, in the
order it is built.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from nmt_cli import __version__, checkpoint, registry
from nmt_cli.config import RunConfig, extended, extras, flag, resolve
from nmt_cli.data.batching import BatchPlan, default_micro_batches, load_batch
from nmt_cli.data.corpus import Corpus, JoinedCorpus, read_manifest
from nmt_cli.device import Plain, fast
from nmt_cli.distributed import World, divide, join_world
from nmt_cli.errors import DataError, UsageError, command_line, main_rank_reports
from nmt_cli.files.text import weighted
from nmt_cli.interfaces import Criterion
from nmt_cli.model import Model
from nmt_cli.streams import say
from nmt_cli.task import Task
from nmt_cli.training.costs import CostMeter, device_rates
from nmt_cli.training.gradients import Objective, trained
from nmt_cli.training.length import length_of
from nmt_cli.training.messages import (
    advice,
    closing_lines,
    ending,
    opening_lines,
    parameters_of,
    summary,
)
from nmt_cli.training.origin import Origin, assign, model_settings, origin_of
from nmt_cli.training.run import Run
from nmt_cli.training.run_directory import CONFIG, read_config, recorded_config
from nmt_cli.training.settings import RunOptions, TrainingConfig
from nmt_cli.training.state import LOSS
from nmt_cli.training.trainer import Trainer
from nmt_cli.training.updates import Updates

Options = TypeVar("Options", bound=RunOptions)


def configuration(options: RunOptions, flags: Mapping[str, Any]) -> RunConfig:
    """Return the resolved configuration: defaults < origin < preset < file < flags."""
    recorded = recorded_config(options.out)
    if recorded is not None:
        check_owners(recorded, options.out)
    base = None if options.init_from is None else model_settings(options.out, options.init_from)
    config = resolve(TrainingConfig, flags, preset=options.preset, file=options.config, base=base)
    return config if recorded is None else as_begun(config, recorded)


def as_begun(config: RunConfig, recorded: Mapping[str, Any]) -> RunConfig:
    """Return the settings of a run that has begun: its precision, and newer settings as they were
    `before`.
    """
    components = {}
    for kind, component in config.components.items():
        newer = [field for field in fields(component) if field.name not in recorded.get(kind, ())]
        before = {
            field.name: field.metadata["before"] for field in newer if "before" in field.metadata
        }
        components[kind] = replace(component, **before)
    config = replace(config, components=components)
    if config.training.precision == "auto":
        config = with_precision(config, recorded["training"]["precision"])
    return config


def check_owners(recorded: Mapping[str, Any], run: Path | None) -> None:
    """Raise a UsageError if a setting of an earlier run is of a package, or of a part of this one,
    that is missing.
    """
    known = extended(TrainingConfig).__dataclass_fields__
    for name in recorded["training"]:
        if name not in known:
            module = recorded.get("modules", {}).get(
                name, "of another package, or of an annex of nmt"
            )
            raise UsageError(
                f"{run}: its setting training.{name} needs a module that is missing here, "
                f"{module}. "
                "Install it, or name it by --import"
            )


def with_precision(config: RunConfig, precision: str) -> RunConfig:
    return replace(config, training=replace(config.training, precision=precision))


def open_data(data: Sequence[str], verify: bool = True) -> tuple[Task, Corpus, Corpus | None]:
    """Return the task, the training text of all directories, and the first validation set, if there
    is one.

    Raises:
        DataError: with `verify`, which reads all of the data, a file has changed since `nmt
            prepare` wrote it.
        UsageError: a directory has no training text, has another vocabulary, or is a run.
    """
    parts = [(Path(path), weight) for path, weight in map(weighted, data)]
    opened = [_open_directory(path, verify) for path, _ in parts]
    (first, weight), (task, corpus, _) = parts[0], opened[0]
    for (path, _), (other, *_) in zip(parts, opened, strict=True):
        if difference := task.difference(other):
            raise UsageError(
                f"{path}: another {difference} than {first}; prepare it with --subwords-from "
                f"{first}"
            )
    if len(parts) > 1 or weight != 1:
        corpus = JoinedCorpus([corpus for _, corpus, _ in opened], [weight for _, weight in parts])
    return task, corpus, next((valid for *_, valid in opened if valid is not None), None)


def _open_directory(data: Path, verify: bool) -> tuple[Task, Corpus, Corpus | None]:
    """Return the task, the training text and the validation set, if there is one, of one directory."""
    if (data / checkpoint.FOLDER_OF_RUN).is_dir():
        raise UsageError(
            f"{data}: a run, not prepared data; to resume it: "
            f"{command_line('train', '--resume', data)}"
        )
    manifest = read_manifest(data)
    splits, recorded = manifest.get("splits"), manifest.get("task")
    task = checkpoint.load_task(data / checkpoint.TASK)
    if isinstance(recorded, dict) and recorded.get("vocabularies") != task.describe().get(
        "vocabularies"
    ):
        raise DataError(
            f"{data / checkpoint.TASK}: not the vocabularies of these data; run nmt prepare again"
        )
    corpora = [
        Corpus.open(data, split)
        for split in ("train", "valid")
        if isinstance(splits, dict) and split in splits
    ]
    if not corpora or corpora[0].split != "train" or not len(corpora[0]):
        raise UsageError(f"{data}: there is no training text; run nmt prepare with --train PREFIX")
    for corpus in corpora if verify else ():
        corpus.verify()
        corpus.check_ids((task.source_vocabulary_size, task.target_vocabulary_size))
    return task, corpora[0], corpora[1] if len(corpora) > 1 and len(corpora[1]) else None


def check_settings(settings: TrainingConfig, task: Task, criterion: Criterion) -> None:
    """Raise a UsageError for settings that cannot be used for this task, with this criterion or
    together.
    """
    measures = [LOSS, *task.measures]
    if settings.best_by not in measures:
        raise UsageError(
            f"--best-by {settings.best_by}: the task {task.name!r} has {' and '.join(measures)}"
        )
    searches = settings.validation_bleu or settings.best_by != LOSS
    if settings.model_parallel and (searches or criterion.refines):
        raise UsageError(
            "--model-parallel: there can be no search, as --validation-bleu, --best-by and "
            "--criterion ask"
        )


def initial_model(
    config: RunConfig, task: Task, world: World, origin: Origin | None
) -> tuple[Any, Origin | None]:
    """Return the model before its first update, and its origin. Without one, the seed determines
    the weights.
    """
    settings: TrainingConfig = config.training
    torch.manual_seed(settings.seed)
    try:
        model = model_of(config, checkpoint.vocabulary_of(task))
        if settings.model_parallel and world.size > 1:
            divide(model, world)
        model.to(world.device)
    except (RuntimeError, OverflowError) as error:
        raise UsageError(
            f"the model cannot be built: {str(error).splitlines()[0]}; make it smaller"
        ) from error
    origin = prepared(model, config, origin, task, say if world.is_main else lambda _: None)
    if origin is not None:
        assign(origin, model, task)
    return model, origin


def prepared(
    model: Any,
    config: RunConfig,
    origin: Origin | None = None,
    task: Task | None = None,
    note: Callable[[str], None] = say,
) -> Origin | None:
    """Let all registered preparations change a model before its optimizer is made; return the
    origin of its weights.

    A preparation is `(config, *, model, run, origin, task, note) -> Origin | None`, where `run` is
    the `RunConfig`, and `task` is None without data. It does nothing unless one of its settings
    asks for it. None: the origin stays.
    """
    about = {"model": model, "run": config, "task": task, "note": note}
    for component in registry.components("preparation"):
        origin = component.build(config.extras[component.name], origin=origin, **about) or origin
    return origin


def model_of(config: RunConfig, vocabulary: Mapping[str, Any]) -> Model:
    """Return the model with its initial weights."""
    model: Model = registry.build_as(
        Model, config["model"], attention=config["attention"], **vocabulary
    )
    return model


def model_without_weights(config: RunConfig, vocabulary: Mapping[str, Any]) -> Model:
    """Return the model on the meta device: names and shapes of its parameters, and nothing in
    memory.
    """
    with checkpoint.WithoutInitialisation(), torch.device("meta"):
        return model_of(config, vocabulary)


def build_run(
    config: RunConfig,
    task: Task,
    corpus: Corpus,
    valid: Corpus | None,
    world: World,
    origin: Origin | None,
    out: Path,
    quiet: bool,
) -> Run:
    """Build everything that a training consists of, but its observers. Nothing is written."""
    settings: TrainingConfig = config.training
    criterion = registry.build_as(Criterion, config["criterion"])
    check_settings(settings, task, criterion)
    model, origin = initial_model(config, task, world, origin)
    plan = plan_of(config, task, corpus)
    computing = fast(world.device)

    precision = settings.precision
    if precision == "auto":
        # As the main rank has it.
        precision = world.gather(computing.precision(model, settings.deterministic))[0]
    if (
        settings.model_parallel and precision == "float16"
    ):  # each rank would find overflows of its own
        raise UsageError("--model-parallel cannot be used with --precision float16")
    computing.fit(model, criterion)
    if settings.gradient_checkpointing:
        recompute(model.stacks())
    else:
        computing.compile(model, criterion, settings.compile)

    packed = computing.takes_bins(model, criterion)
    automatic = default_micro_batches(
        plan.usual_tokens(), world.size, computing.sizes.batch_tokens, packed
    )
    load = computing.loader(load_batch, model, packed)
    updates = Updates(corpus, plan, world, settings.micro_batches or automatic, load, packed)
    optimizer = registry.build(config["optimizer"], parameters=trained(model))
    schedule = registry.build(config["schedule"], d_model=config["model"].d_model)
    objective = Objective(model, criterion, precision)
    trainer = Trainer(settings, world, computing, objective, optimizer, schedule, updates)

    rates = device_rates(world.device, precision, settings.sustained_tflops, settings.peak_tflops)
    costs = CostMeter(rates, world.size)
    contents = describe(with_precision(config, precision), task, corpus, origin, computing)
    run = Run(trainer, task, valid, length_of(plan, settings), costs, contents, out, quiet)
    criterion.prepare(run)
    return run


def plan_of(config: RunConfig, task: Task, corpus: Corpus) -> BatchPlan:
    settings: TrainingConfig = config.training
    about = {"corpus": corpus, "task": task, "seed": settings.seed}
    plan = BatchPlan(
        corpus.source_lengths,
        corpus.target_lengths,
        settings.batch_tokens,
        settings.seed,
        corpus.parts,
        batch_sentences=settings.batch_sentences,
        changes=[registry.build(extra, **about) for extra in config.used("sentences")],
    )
    if not all(plan.size(epoch) for epoch in plan.begins()):
        raise UsageError("with these weights, an epoch has no sentences")
    return plan


def recompute(stacks: Sequence[Any]) -> None:
    """Let the backward pass compute the activations of each layer again."""
    if not stacks:
        raise UsageError("--gradient-checkpointing: this model cannot compute its layers again")
    for stack in stacks:
        stack.recompute = True


def describe(
    config: RunConfig, task: Task, corpus: Corpus, origin: Origin | None, computing: Plain
) -> dict[str, Any]:
    """Return the fields of `checkpoint.Contents` except the step."""
    sections = config.identity()
    record = None if origin is None else origin.record
    identity = {**sections, "data": corpus.fingerprint, **({"origin": record} if record else {})}
    everything = json.dumps(identity, sort_keys=True)
    modules = {
        kind: registry.component_of(component).module
        for kind, component in config.components.items()
    }
    return {
        "sections": sections,
        **checkpoint.vocabulary_of(task),
        "run": hashlib.sha256(everything.encode()).hexdigest()[:16],
        "modules": {**modules, "task": type(task).__module__},
        "origin": record,
        "computed_by": computing.name,
    }


def with_settings_of_run(options: Options, run: Path) -> Options:
    """Return the options that resume `run`: its data unless another path is given, its
    configuration, its imports.
    """
    for name in ("out", "preset", "config", "init_from"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"--resume takes the settings from {run}, so {flag(name)} cannot be used with it"
            )
    recorded = read_config(run)
    data = options.data or tuple(recorded["data"].get("paths", [recorded["data"]["path"]]))
    missing = [path for path, _ in map(weighted, data) if not Path(path).is_dir()]
    if missing and not options.data:
        again = command_line("train", "DATA", "--resume", run)
        raise UsageError(f"{run}: its data, {missing[0]}, is missing; if it was moved: {again}")
    imports = tuple(dict.fromkeys([*recorded["imports"], *options.imports]))
    registry.discover(imports)
    return replace(options, data=data, out=run, config=run / CONFIG, imports=imports)


def train(options: RunOptions, flags: Mapping[str, Any]) -> None:
    """Train on `options.data` into the run `options.out`, or resume it; `flags` are settings by
    field name.
    """
    data, out = options.data, options.out
    if not data or out is None:
        raise UsageError(f"{'--out RUN' if data else 'DATA'} is missing: nmt train DATA --out RUN")
    with main_rank_reports():
        config = configuration(options, flags)
    settings: TrainingConfig = config.training
    with join_world(settings.device, settings.timeout_minutes) as world:
        prepare_torch(settings, world.device)
        run = run_of(options, config, flags, world, out, quiet=not world.is_main)
        config = with_precision(config, run.trainer.objective.precision)
        try:
            if world.is_main:
                paths = [str(Path(text).resolve()) for text in data]  # a weight stays
                recorded = {
                    "path": " ".join(paths),
                    "paths": paths,
                    "fingerprint": run.corpus.fingerprint,
                }
                about = {
                    "data": recorded,
                    "imports": list(options.imports),
                    "origin": run.contents["origin"],
                }
                about["modules"] = {
                    name: extra.module
                    for extra in extras()
                    for name in extra.config.__dataclass_fields__
                }
                run.directory.claim({**config.to_json(), **about, "environment": environment(run)})
            world.barrier()
            train_run(run, config, options.preset)
        finally:
            run.directory.release()


def prepare_torch(settings: TrainingConfig, device: torch.device) -> None:
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS needs it
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    fast(device).prepare_training()


def run_of(
    options: RunOptions,
    config: RunConfig,
    flags: Mapping[str, Any],
    world: World,
    out: Path,
    quiet: bool,
) -> Run:
    """Return a run with its observers; nothing is written.

    Raises:
        NmtError: the data, the origin or the settings cannot be used, or not together.
    """
    task, corpus, valid = open_data(options.data, verify=world.is_first_of_machine)
    origin = origin_of(options.out, options.init_from, config, task)
    run = build_run(config, task, corpus, valid, world, origin, out, quiet)
    if valid is None:
        check_validation(config.training, flags, " ".join(options.data))
    check_shares(run.trainer.updates.micro_batches, world.size)
    run.observers = [registry.build(observer, run=run) for observer in config.used("observer")]
    return run


def environment(run: Run) -> dict[str, Any]:
    """Return the versions and the devices of this process group, and the number of parameters."""
    world = run.world
    cuda = world.device.type == "cuda"
    name = (
        torch.cuda.get_device_name(world.device)
        if cuda
        else platform.processor() or platform.machine()
    )
    versions = {"nmt": __version__, "torch": torch.__version__, "Python": platform.python_version()}
    devices = {"devices": f"{world.size} x {name}", "system": platform.platform()}
    return {**versions, **devices, "parameters": parameters_of(run.model)[0]}


def check_validation(settings: TrainingConfig, flags: Mapping[str, Any], data: str) -> None:
    wanted = {
        "--patience": settings.patience is not None,
        "--best-by": settings.best_by != LOSS,
        "--validation-bleu": settings.validation_bleu,
        "--validate-every": {"validate_every", "training.validate_every"}
        & flags.keys(),  # a preset may have it
    }
    given = [name for name, value in wanted.items() if value]
    if given:
        raise UsageError(
            f"{' and '.join(given)}: {data} has no validation set; run nmt prepare with --valid "
            "PREFIX"
        )


def check_shares(micro_batches: int, processes: int) -> None:
    if processes > micro_batches:
        raise UsageError(
            f"{processes} processes cannot share the {micro_batches} micro-batches of an update; "
            "start fewer, or a "
            f"new run with --micro-batches {processes} (or a multiple of it)"
        )


def train_run(run: Run, config: RunConfig, preset: str | None) -> None:
    origin = run.contents["origin"]
    resumed = run.resume()
    lines = advice(config, preset, run.trainer.schedule, run.length.steps, run, resumed)
    if run.finished and not run.state.pending:
        limit = (
            "--patience"
            if run.out_of_patience
            else "--max-epochs"
            if run.has_all_epochs
            else "--max-steps"
        )
        run.reporter.note(f"already {ending(run)}; give a larger {limit} to train on")
    elif resumed:
        for line in lines:
            run.reporter.note(line)
    else:
        if origin is not None:
            run.reporter.note(
                f"starting from the weights of {origin['path']}, step {origin['step']:,}"
            )
        run.reporter.note("\n".join([opening_lines(run), *lines]))
        if origin is not None and run.valid is not None:  # step 0 may be the best
            run.state.pending = ["validate", "log"]
    run.fit()
    figures = summary(run)
    if run.world.is_main:
        run.directory.write_summary(figures)
    run.reporter.summarise(figures)
    run.reporter.note(closing_lines(run))
