"""A training run: from its data and settings to its summary."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nmt_cli import __version__, checkpoint, registry
from nmt_cli.commands.dry_run import dry_run, opening_lines, parameters_of, peak_warnings, show, warnings
from nmt_cli.commands.train_options import RunOptions, TrainOptions
from nmt_cli.commands.train_setup import build_setup, configuration, describe, open_data, with_precision
from nmt_cli.config import RunConfig, flag
from nmt_cli.data.corpus import weighted
from nmt_cli.device import prepare_cpu
from nmt_cli.distributed import World, join_world
from nmt_cli.errors import UsageError, command_line, counted, import_flags, main_rank_reports
from nmt_cli.training.costs import utilisation
from nmt_cli.training.length import highest_rate
from nmt_cli.training.origin import Origin, origin_of
from nmt_cli.training.reporter import Reporter, duration
from nmt_cli.training.run import Run
from nmt_cli.training.run_directory import CONFIG, RunDirectory, read_config
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.training.setup import Setup
from nmt_cli.training.state import LOSS
from nmt_cli.training.trainer import Trainer


def run(options: TrainOptions, flags: Mapping[str, Any]) -> None:
    """Resume or start a run, or show it."""
    if options.resume is not None:
        with main_rank_reports():
            options = with_settings_of_run(options, options.resume)
    if options.dry_run:
        show(dry_run(options, flags), options.as_json)
    else:
        train(options, flags)


def with_settings_of_run(options: TrainOptions, run: Path) -> TrainOptions:
    """Return the options that resume `run`: its data unless another path is given, its configuration, its imports."""
    for name in ("out", "preset", "config", "init_from"):
        if getattr(options, name) is not None:
            raise UsageError(f"--resume takes the settings from {run}, so {flag(name)} cannot be used with it")
    recorded = read_config(run)
    data = options.data or tuple(recorded["data"].get("paths", [recorded["data"]["path"]]))
    missing = [path for path, _ in map(weighted, data) if not Path(path).is_dir()]
    if missing and not options.data:
        again = command_line("train", "DATA", "--resume", run)
        raise UsageError(f"{run}: its data, {missing[0]}, is missing; if it was moved: {again}")
    imports = tuple(dict.fromkeys([*recorded["imports"], *options.imports]))
    registry.discover(imports)
    return replace(options, data=data, out=run, config=run / CONFIG, imports=imports)


def train(options: TrainOptions, flags: Mapping[str, Any]) -> None:
    """Train on `options.data` into the run `options.out`, or resume it; `flags` are settings by field name."""
    data, out = options.data, options.out
    if not data or out is None:
        raise UsageError(f"{'--out RUN' if data else 'DATA'} is missing: nmt train DATA --out RUN")
    with main_rank_reports():
        config = configuration(options, flags)
    settings: TrainingConfig = config.training
    with join_world(settings.device, settings.timeout_minutes) as world:
        prepare_torch(settings, world.device)
        directory = RunDirectory(out)
        reporter = Reporter(quiet=not world.is_main)
        try:
            setup, origin = setup_of(options, config, flags, world)  # first, so that an error leaves no directory
            corpus = setup.corpus
            config = with_precision(config, setup.precision)
            if world.is_main:
                paths = [str(Path(text).resolve()) for text in data]  # a weight stays
                recorded = {"path": " ".join(paths), "paths": paths, "fingerprint": corpus.fingerprint}
                about = {"data": recorded, "imports": list(options.imports), "origin": origin and origin.record}
                directory.claim({**config.to_json(), **about, "environment": environment(world, setup)})
            world.barrier()
            run = Run(setup, directory, reporter, describe(config, setup.task, corpus, origin))
            if origin is not None and origin.weights is not None:
                reporter.note(f"starting from the weights of {origin.record['path']}, step {origin.record['step']:,}")
            train_run(run, peak_warnings(config, options.preset))
        finally:
            directory.release()


def prepare_torch(settings: TrainingConfig, device: torch.device) -> None:
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS needs it
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    if device.type == "cpu":
        prepare_cpu()


def setup_of(
    options: RunOptions, config: RunConfig, flags: Mapping[str, Any], world: World
) -> tuple[Setup, Origin | None]:
    """Return the objects of the run, and the model that it starts from, if there is one; nothing is written.

    Raises:
        NmtError: the data, the origin or the settings cannot be used, or not together.
    """
    task, corpus, valid = open_data(options.data, verify=world.is_first_of_machine)
    origin = origin_of(options.out, options.init_from, config, task, options.new_vocabulary)
    setup = build_setup(config, task, corpus, valid, world, origin)
    if valid is None:
        check_validation(config.training, flags, " ".join(options.data))
    check_shares(setup.micro_batches, world.size)
    return setup, origin


def train_run(run: Run, more_warnings: Sequence[str] = ()) -> None:
    resumed = run.resume()
    if run.finished and not run.state.pending:
        limit = "--patience" if run.out_of_patience else "--max-epochs" if run.has_all_epochs else "--max-steps"
        run.reporter.note(f"already {ending(run)}; give a larger {limit} to train on")
    elif resumed:
        for line in warnings(run.setup, adapts=True, resumed=True):
            run.reporter.note(line)
    else:
        adapts = run.contents["origin"] is not None
        run.reporter.note("\n".join([opening_lines(run.setup, adapts), *more_warnings]))
        if adapts and run.setup.validate is not None:  # step 0 may be the best
            run.state.pending = ["validate", "log"]
    Trainer(run).fit()
    figures = summary(run)
    if run.world.is_main:
        run.directory.write_summary(figures)
    run.reporter.summarise(figures)
    run.reporter.note(closing_lines(run))


def environment(world: World, setup: Setup) -> dict[str, Any]:
    """Return the versions and the devices of this process group, and the number of parameters."""
    cuda = world.device.type == "cuda"
    name = torch.cuda.get_device_name(world.device) if cuda else platform.processor() or platform.machine()
    versions = {"nmt": __version__, "torch": torch.__version__, "Python": platform.python_version()}
    devices = {"devices": f"{world.size} x {name}", "system": platform.platform()}
    return {**versions, **devices, "parameters": parameters_of(setup.model)[0]}


def check_validation(settings: TrainingConfig, flags: Mapping[str, Any], data: str) -> None:
    wanted = {
        "--patience": settings.patience is not None,
        "--best-by": settings.best_by != LOSS,
        "--validation-bleu": settings.validation_bleu,
        "--show": settings.show > 0,
        "--validate-every": {"validate_every", "training.validate_every"} & flags.keys(),  # a preset may have it
    }
    if any(wanted.values()):
        given = " and ".join(name for name in wanted if wanted[name])
        raise UsageError(f"{given}: {data} has no validation set; run nmt prepare with --valid PREFIX")


def check_shares(micro_batches: int, processes: int) -> None:
    if processes > micro_batches:
        raise UsageError(
            f"{processes} processes cannot share the {micro_batches} micro-batches of an update; start fewer, or a "
            f"new run with --micro-batches {processes} (or a multiple of it)"
        )


def summary(run: Run) -> dict[str, Any]:
    state, total = run.state, run.state.total
    return {
        "steps": state.step,
        "parameters": parameters_of(run.setup.model)[0],
        "target_tokens": total.target_tokens,
        "training_hours": total.seconds / 3600,
        "target_tokens_per_second": total.target_tokens / max(total.seconds, 1e-9),
        "peak_learning_rate": highest_rate(run.setup.schedule, state.step),
        f"best_validation_{run.config.best_by}": state.best,
        **{f"best_validation_{name}": value for name, value in state.best_figures.items()},
        "best_step": state.best_step,
        "skipped_updates": state.skipped,
        "flops": total.flops or None,
        "flops_as_table2": total.flops_as_table2,
        "model_flop_utilisation": utilisation(total),
        **run.setup.costs.describe(total),
    }


def ending(run: Run) -> str:
    state = run.state
    if run.out_of_patience:
        return f"stopped at step {state.step:,}: no improvement in {counted(state.stale_validations, 'validation')}"
    epochs = f" after {counted(state.epochs, 'epoch')}" if run.has_all_epochs else ""
    return f"finished at step {state.step:,}{epochs}"


def closing_lines(run: Run) -> str:
    state, path = run.state, run.directory.path
    lines = [f"{ending(run)}, after {duration(state.total.seconds)} of training"]
    if state.best is not None:
        by = run.config.best_by
        others = [name for name in (LOSS, *run.setup.task.measures) if name != by and name in state.best_figures]
        also = "".join(f", {name} {state.best_figures[name]:.3f}" for name in others)
        lines.append(f"best validation {by} {state.best:.3f}{also} at step {state.best_step:,} ({path / 'best'})")
        if is_far_worse(state.last, state.best):
            lines.append(f"validation {by} has been worse since step {state.best_step:,}: {state.last:.3f} at the end")
    imports = import_flags(read_config(path)["imports"])
    lines.append(f"report: {command_line('report', path, '--out', path / 'report.html', *imports)}")
    return "\n".join([*lines, f"next: {command_line(*next_command(run), *imports)}"])


def is_far_worse(last: float | None, best: float) -> bool:
    """Return whether the last validation is worse than the best one by more than a tenth, in either direction."""
    return last is not None and abs(last - best) > 0.1 * abs(best)


def next_command(run: Run) -> list[object]:
    """Return the command that averages the checkpoints of the last tenth of the run, or translates with the best one.

    The mean with earlier ones is worse than the last; after --patience, the last ones are past the best.
    """
    state, path = run.state, run.directory.path
    last = checkpoint.checkpoints_of(path)[-5:]
    settled = [folder for folder in last if 10 * checkpoint.read_contents(folder).step >= 9 * state.step]
    if len(settled) > 1 and not run.out_of_patience:
        return ["average", path, "--last", len(settled), "--out", path / "averaged"]
    return ["translate", path if state.best is None else path / "best"]
