"""The start of a run: its settings, its data, and all parts of a training."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from nmt_cli import __version__, checkpoint, registry
from nmt_cli.config import RunConfig, extended, extras, flag, resolve
from nmt_cli.cores import available_cores
from nmt_cli.data.batching import BatchPlan, default_micro_batches, load_batch
from nmt_cli.data.corpus import Corpus, JoinedCorpus, read_manifest
from nmt_cli.device import UNFIT, Plain, fast
from nmt_cli.distributed import World, divide, join_world
from nmt_cli.errors import (
    DataError,
    UsageError,
    command_line,
    environment_number,
    main_rank_reports,
)
from nmt_cli.files.text import weighted
from nmt_cli.interfaces import Criterion
from nmt_cli.metrics.bleu import check_metric
from nmt_cli.model import Model
from nmt_cli.streams import say, warn
from nmt_cli.task import Task
from nmt_cli.training.costs import CostMeter, device_rates
from nmt_cli.training.gradients import Objective, trained
from nmt_cli.training.length import length_of
from nmt_cli.training.messages import (
    about_kernels,
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
from nmt_cli.weights import WithoutInitialisation

Options = TypeVar("Options", bound=RunOptions)

MOST_DRAWING = 16  # processes of a rank that draw text


def configuration(options: RunOptions, flags: Mapping[str, Any]) -> RunConfig:
    """Return the resolved configuration: defaults < origin < preset < file < flags."""
    recorded = recorded_config(options.out)
    if recorded is not None:
        check_owners(recorded, options.out)
    base = None
    if options.init_from is not None:
        base = model_settings(options.out, options.init_from)
    config = resolve(TrainingConfig, flags, preset=options.preset, file=options.config, base=base)
    if recorded is None:
        return config
    return as_started(config, recorded)


def as_started(config: RunConfig, recorded: Mapping[str, Any]) -> RunConfig:
    """Return the settings with which an earlier run goes on as it was started.

    It keeps its precision and its kernels. Settings that are newer than the run are as they were
    `before`.
    """
    components = {}
    for kind, component in config.components.items():
        recorded_names = recorded.get(kind, ())
        before = {}
        for field in fields(component):
            if field.name not in recorded_names and "before" in field.metadata:
                before[field.name] = field.metadata["before"]
        components[kind] = replace(component, **before)
    config = replace(config, components=components)
    training = recorded["training"]
    if config.training.precision == "auto":
        config = with_training(config, precision=training["precision"])
    if config.training.kernels is None:
        config = with_training(config, kernels=training.get("kernels", False))
    return config


def check_owners(recorded: Mapping[str, Any], run: Path | None) -> None:
    """Raise a UsageError if a setting of an earlier run belongs to a module that is missing."""
    known = extended(TrainingConfig).__dataclass_fields__
    modules = recorded.get("modules", {})
    for name in recorded["training"]:
        if name not in known:
            module = modules.get(name, "of another package, or of an annex of nmt")
            raise UsageError(
                f"{run}: its setting training.{name} needs a module that is missing here, "
                f"{module}. Install it, or name it by --import"
            )


def with_training(config: RunConfig, **settings: Any) -> RunConfig:
    return replace(config, training=replace(config.training, **settings))


class TrainingData(NamedTuple):
    """Prepared data, opened."""

    task: Task
    corpus: Corpus
    valid: Corpus | None


def open_data(data: Sequence[str], verify: bool = True) -> TrainingData:
    """Return the training text of all directories with their task, and the first validation set.

    Raises:
        DataError: with `verify`, which reads all of the data, a file has changed since `nmt
            prepare` wrote it.
        UsageError: a directory has no training text, has another vocabulary, or is a run.
    """
    paths = []
    weights = []
    for text in data:
        path, weight = weighted(text)
        paths.append(Path(path))
        weights.append(weight)
    parts = [_open_directory(directory, verify) for directory in paths]
    first = parts[0]
    for directory, part in zip(paths, parts, strict=True):
        difference = first.task.difference(part.task)
        if difference:
            raise UsageError(
                f"{directory}: another {difference} than {paths[0]}; prepare it with "
                f"--subwords-from {paths[0]}"
            )
    corpus = first.corpus
    if len(parts) > 1 or weights[0] != 1:
        corpus = JoinedCorpus([part.corpus for part in parts], weights)
    valid = None
    for part in parts:
        if valid is None:
            valid = part.valid
    return TrainingData(first.task, corpus, valid)


def _open_directory(data: Path, verify: bool) -> TrainingData:
    """Return the data of one directory."""
    if (data / checkpoint.FOLDER_OF_RUN).is_dir():
        raise UsageError(
            f"{data}: a run, not prepared data; to resume it: "
            f"{command_line('train', '--resume', data)}"
        )
    manifest = read_manifest(data)
    task = checkpoint.load_task(data / checkpoint.TASK)
    recorded = manifest.get("task")
    if isinstance(recorded, dict):
        vocabularies = task.describe().get("vocabularies")
        if recorded.get("vocabularies") != vocabularies:
            raise DataError(
                f"{data / checkpoint.TASK}: not the vocabularies of these data; run nmt prepare "
                "again"
            )
    splits = manifest.get("splits")
    if not isinstance(splits, dict):
        splits = {}
    corpora = {split: Corpus.open(data, split) for split in ("train", "valid") if split in splits}
    if not corpora.get("train"):
        raise UsageError(f"{data}: there is no training text; run nmt prepare with --train PREFIX")
    if verify:
        for corpus in corpora.values():
            corpus.verify()
            corpus.check_ids((task.source_vocabulary_size, task.target_vocabulary_size))
    return TrainingData(task, corpora["train"], corpora.get("valid") or None)


def check_measure(name: str, task: Task) -> None:
    """Raise a UsageError if there is no such metric of a validation."""
    if name in (LOSS, *task.measures):
        return
    try:
        check_metric(name, task.target_language)
    except UsageError as error:
        names = ", ".join((LOSS, *task.measures))
        raise UsageError(
            f"--best-by {name}: the task {task.name!r} has {names}; {error}"
        ) from error


def check_settings(settings: TrainingConfig, task: Task, criterion: Criterion) -> None:
    """Raise a UsageError for settings that do not go with the task, the criterion or each other."""
    for name in settings.measures:
        check_measure(name, task)
    searches = settings.validation_bleu or settings.best_by != LOSS
    if settings.model_parallel and (searches or criterion.refines):
        raise UsageError(
            "--model-parallel: there can be no search, as --validation-bleu, --best-by and "
            "--criterion ask"
        )


def initial_model(
    config: RunConfig, task: Task, world: World, origin: Origin | None
) -> tuple[Any, Origin | None]:
    """Return the model before its first update, and its origin.

    Without an origin, the seed determines the weights.
    """
    settings: TrainingConfig = config.training
    torch.manual_seed(settings.seed)
    try:
        model = model_of(config, checkpoint.vocabulary_of(task))
        if settings.model_parallel and world.size > 1:
            divide(model, world)
        model.to(world.device)
    except (RuntimeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"the model cannot be built: {reason}; make it smaller") from error
    note = say if world.is_main else _ignore
    origin = prepared(model, config, origin, task, note)
    if origin is not None:
        assign(origin, model, task)
    return model, origin


def _ignore(_text: str) -> None:
    """Say nothing, on ranks other than the main one."""


def prepared(
    model: Any,
    config: RunConfig,
    origin: Origin | None = None,
    task: Task | None = None,
    note: Callable[[str], None] = say,
) -> Origin | None:
    """Let all registered preparations change a model, and return the origin of its weights.

    A preparation is `(config, *, model, run, origin, task, note) -> Origin | None`, where `run` is
    the `RunConfig`, and `task` is None without data. It is called before the optimizer is made, and
    does nothing unless one of its settings asks for it. If it returns None, the origin stays.
    """
    for component in registry.components("preparation"):
        changed_origin = component.build(
            config.extras[component.name],
            model=model,
            run=config,
            origin=origin,
            task=task,
            note=note,
        )
        if changed_origin is not None:
            origin = changed_origin
    return origin


def model_of(config: RunConfig, vocabulary: Mapping[str, Any]) -> Model:
    """Return the model with its initial weights."""
    model: Model = registry.build_as(
        Model, config["model"], attention=config["attention"], **vocabulary
    )
    return model


def model_without_weights(config: RunConfig, vocabulary: Mapping[str, Any]) -> Model:
    """Return the model on the meta device: its parameters have names and shapes, but no memory."""
    with WithoutInitialisation(), torch.device("meta"):
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
    """Build all parts of a training except its observers. Nothing is written."""
    settings: TrainingConfig = config.training
    criterion = registry.build_as(Criterion, config["criterion"])
    check_settings(settings, task, criterion)
    model, origin = initial_model(config, task, world, origin)
    plan = plan_of(config, task, corpus)
    computing = fast(world.device)

    precision = settings.precision
    if precision == "auto":  # the main rank's, on all ranks
        precisions = world.gather(computing.precision(model, settings.deterministic))
        precision = precisions[0]
    if settings.model_parallel and precision == "float16":
        # An overflow in one rank's parameters would be unknown to the others.
        raise UsageError("--model-parallel cannot be used with --precision float16")
    if settings.kernels is not False:
        checked = computing.check_kernels(model, criterion, precision)
        computing.kernels = agreed_kernels(world.gather(checked))
        if not quiet and not {"", UNFIT}.issuperset(computing.kernels.values()):
            warn(f"kernels {about_kernels(computing.kernels)}")
    computing.fit(model, criterion)
    if settings.gradient_checkpointing:
        recompute(model.stacks())
    else:
        computing.compile(model, criterion, settings.compile)

    packed = computing.takes_bins(model, criterion)
    micro_batches = settings.micro_batches
    if micro_batches is None:
        limit = computing.sizes.batch_tokens
        micro_batches = default_micro_batches(plan.usual_tokens(), world.size, limit, packed)
    load = computing.loader(load_batch, model, packed)
    drawing = 1
    if world.device.type == "cuda":  # on a CPU, an update takes far longer than its text
        drawing = drawing_processes(plan)
    updates = Updates(corpus, plan, world, micro_batches, load, packed, drawing)
    optimizer = registry.build(config["optimizer"], parameters=trained(model))
    schedule = registry.build(config["schedule"], d_model=config["model"].d_model)
    objective = Objective(model, criterion, precision)
    trainer = Trainer(settings, world, computing, objective, optimizer, schedule, updates)

    rates = device_rates(world.device, precision, settings.sustained_tflops, settings.peak_tflops)
    costs = CostMeter(rates, world.size)
    contents = describe(with_training(config, precision=precision), task, corpus, origin, computing)
    run = Run(trainer, task, valid, length_of(plan, settings), costs, contents, out, quiet)
    criterion.prepare(run)
    return run


def agreed_kernels(of_ranks: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return `Plain.kernels`. One that fails on a rank is used on none."""
    agreed: dict[str, str] = {}
    for kernels in of_ranks:
        for part, trouble in kernels.items():
            agreed[part] = agreed.get(part) or trouble
    return agreed


def plan_of(config: RunConfig, task: Task, corpus: Corpus) -> BatchPlan:
    """Return the plan of the updates.

    Raises:
        UsageError: an epoch has no sentences.
    """
    settings: TrainingConfig = config.training
    changes = [
        registry.build(change, corpus=corpus, task=task, seed=settings.seed)
        for change in config.used("sentences")
    ]
    plan = BatchPlan(
        corpus.source_lengths,
        corpus.target_lengths,
        settings.batch_tokens,
        settings.seed,
        corpus.parts,
        batch_sentences=settings.batch_sentences,
        changes=changes,
    )
    if not all(plan.size(epoch) for epoch in plan.begins()):
        raise UsageError("with these weights, an epoch has no sentences")
    return plan


def drawing_processes(plan: BatchPlan) -> int:
    """Return the number of processes that draw this rank's text. 1: its own."""
    changes = plan.text_changes()
    if not changes:
        return 1
    try:
        ForkingPickler.dumps(changes)
    except Exception:  # version 2.0 did not ask it of changes
        return 1
    cores = available_cores() // environment_number("LOCAL_WORLD_SIZE", 1)
    return min(cores, MOST_DRAWING)


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
    identity: dict[str, Any] = {**sections, "data": corpus.fingerprint}
    record = None
    if origin is not None:
        record = origin.record
        identity["origin"] = record
    identity_text = json.dumps(identity, sort_keys=True)
    modules = {}
    for kind, component in config.components.items():
        modules[kind] = registry.component_of(component).module
    modules["task"] = type(task).__module__
    return {
        "sections": sections,
        **checkpoint.vocabulary_of(task),
        "run": hashlib.sha256(identity_text.encode()).hexdigest()[:16],
        "modules": modules,
        "origin": record,
        "computed_by": computing.name,
    }


def with_settings_of_run(options: Options, run: Path) -> Options:
    """Return the options that resume `run`, with its data, its configuration and its imports.

    Raises:
        UsageError: an option says otherwise, or the data are missing.
    """
    for name in ("out", "preset", "config", "init_from"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"--resume takes the settings from {run}, so {flag(name)} cannot be used with it"
            )
    recorded = read_config(run)
    data = options.data  # if they were moved
    if not data:
        recorded_data = recorded["data"]
        data = tuple(recorded_data.get("paths", [recorded_data["path"]]))
        for text in data:
            path, _ = weighted(text)
            if not Path(path).is_dir():
                command = command_line("train", "DATA", "--resume", run)
                raise UsageError(f"{run}: its data, {path}, is missing; if it was moved: {command}")
    imports = tuple(dict.fromkeys([*recorded["imports"], *options.imports]))
    registry.discover(imports)
    return replace(options, data=data, out=run, config=run / CONFIG, imports=imports)


def train(options: RunOptions, flags: Mapping[str, Any]) -> None:
    """Train on `options.data` into the run `options.out`, or resume it.

    Args:
        flags: settings by field name.
    """
    out = options.out
    if not options.data:
        raise UsageError("DATA is missing: nmt train DATA --out RUN")
    if out is None:
        raise UsageError("--out RUN is missing: nmt train DATA --out RUN")
    with main_rank_reports():
        config = configuration(options, flags)
    settings: TrainingConfig = config.training
    with join_world(settings.device, settings.timeout_minutes) as world:
        prepare_torch(settings, world.device)
        run = run_of(options, config, flags, world, out, quiet=not world.is_main)
        kernels = settings.kernels
        if kernels is None:
            kernels = "" in run.trainer.fast.kernels.values()
        precision = run.trainer.objective.precision
        config = with_training(config, precision=precision, kernels=kernels)
        try:
            if world.is_main:
                run.directory.claim(content_of_config(run, config, options))
            world.barrier()
            train_run(run, config, options.preset)
        finally:
            run.directory.release()


def prepare_torch(settings: TrainingConfig, device: torch.device) -> None:
    """Set torch up for this process, before it trains."""
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
    """Return a run with its observers. Nothing is written.

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


def content_of_config(run: Run, config: RunConfig, options: RunOptions) -> dict[str, Any]:
    """Return the content of the run's config.json."""
    paths = [str(Path(text).resolve()) for text in options.data]  # a weight stays
    modules = {}
    for extra in extras():
        for name in extra.config.__dataclass_fields__:
            modules[name] = extra.module
    return {
        **config.to_json(),
        "data": {"path": " ".join(paths), "paths": paths, "fingerprint": run.corpus.fingerprint},
        "imports": list(options.imports),
        "origin": run.contents["origin"],
        "modules": modules,
        "environment": environment(run),
    }


def environment(run: Run) -> dict[str, Any]:
    """Return the versions and the devices of this process group, and the number of parameters."""
    world = run.world
    if world.device.type == "cuda":
        device = torch.cuda.get_device_name(world.device)
    else:
        device = platform.processor() or platform.machine()
    return {
        "nmt": __version__,
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "devices": f"{world.size} x {device}",
        "system": platform.platform(),
        "parameters": parameters_of(run.model)[0],
    }


def check_validation(settings: TrainingConfig, flags: Mapping[str, Any], data: str) -> None:
    """Raise a UsageError for settings of validation, where there is no validation set."""
    given = []
    if settings.patience is not None:
        given.append("--patience")
    if settings.best_by != LOSS:
        given.append("--best-by")
    if settings.validation_bleu:
        given.append("--validation-bleu")
    # The flags, not the settings: a preset may have it.
    if "validate_every" in flags or "training.validate_every" in flags:
        given.append("--validate-every")
    if given:
        raise UsageError(
            f"{' and '.join(given)}: {data} has no validation set; run nmt prepare with --valid "
            "PREFIX"
        )


def check_shares(micro_batches: int, processes: int) -> None:
    if processes > micro_batches:
        raise UsageError(
            f"{processes} processes cannot share the {micro_batches} micro-batches of an update; "
            f"start fewer, or a new run with --micro-batches {processes} (or a multiple of it)"
        )


def train_run(run: Run, config: RunConfig, preset: str | None) -> None:
    """Train to the end of the run, and report."""
    origin = run.contents["origin"]
    resumed = run.resume()
    lines = advice(config, preset, run.trainer.schedule, run.length.steps, run, resumed)
    if run.finished and not run.state.pending:
        limit = limit_reached(run)
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


def limit_reached(run: Run) -> str:
    """Return the flag that has ended the run."""
    if run.out_of_patience:
        return "--patience"
    if run.has_all_epochs:
        return "--max-epochs"
    return "--max-steps"
