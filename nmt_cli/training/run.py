"""The bookkeeping of a run: validation, logging and saving after an update, and resuming.

A resumed run gives the same weights, losses and scores, bit for bit, as one that was never interrupted. When a
signal stops a run, the state is saved with the actions still pending for the last step, and the resumed run does these
first. A killed run repeats the updates since its last checkpoint; metrics logged after it are dropped.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from nmt_cli import checkpoint
from nmt_cli.data.batching import BatchPlan, Indices
from nmt_cli.data.corpus import Corpus
from nmt_cli.device import World
from nmt_cli.errors import Interrupted, TrainingError
from nmt_cli.interfaces import Criterion, Schedule, Task
from nmt_cli.training import optimizer_state
from nmt_cli.training.costs import CostMeter
from nmt_cli.training.reporter import Reporter
from nmt_cli.training.run_directory import RunDirectory
from nmt_cli.training.settings import Interval, TrainingConfig
from nmt_cli.training.state import ACTIONS, Totals, TrainState


@dataclass(frozen=True)
class Parts:
    """The model, the data and everything else that training needs."""

    model: Any
    criterion: Criterion
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    task: Task
    corpus: Corpus
    plan: BatchPlan
    micro_batches: int  # the pieces of an update, which the ranks share
    costs: CostMeter
    validate: Callable[[], dict[str, float]] | None  # returns the loss that chooses the best checkpoint first
    flops: Callable[[Indices, Indices], Mapping[str, float]] | None = None  # of source and target lengths, by part


class Sums(NamedTuple):
    """The losses of an update, over all ranks, and the norm of its gradient."""

    loss: float  # summed over target tokens, EOS included
    nll: float  # likewise
    gradient_norm: float  # of the gradient per target token


class Run:
    """The state of a run, and its files.

    Args:
        contents: the fields of `checkpoint.Contents` except the step.
    """

    def __init__(
        self,
        parts: Parts,
        config: TrainingConfig,
        world: World,
        directory: RunDirectory,
        reporter: Reporter,
        contents: Mapping[str, Any],
    ) -> None:
        self.parts, self.config, self.world, self.directory = parts, config, world, directory
        self.reporter, self.contents = reporter, contents
        self.state = TrainState()
        self.save_interval = Interval(config.save_every, "--save-every")
        every = config.validate_every
        self.validation_interval = Interval(every, "--validate-every") if every else None
        self.newest: Path | None = None  # the newest checkpoint

    def resume(self) -> bool:
        """Restore the newest undamaged checkpoint; return whether there is one."""
        folder = self.newest = self.directory.newest(self.reporter.note)
        if folder is not None:
            checkpoint.assign_weights(self.parts.model, checkpoint.load_weights(folder), str(folder))
            saved = checkpoint.load_training(folder)
            optimizer_state.restore(self.parts.optimizer, saved.values["optimizer"], saved.tensors, str(folder))
            self.state = TrainState.from_json(saved.values["state"], str(folder))
            self.reporter.note(f"resuming from {folder}, step {self.state.step:,}")
        self.world.barrier()  # all ranks have read before anything is deleted
        if self.world.is_main:
            last_logged = self.state.step - bool(self.state.pending)  # a pending step is logged by `do_pending`
            self.directory.rewind(folder, last_logged)
            self.directory.delete_old(self.config.keep_last)
            if self.state.best_step:
                self.directory.repair_best(self.state.best_step, self.reporter.note)
        return folder is not None

    @property
    def out_of_patience(self) -> bool:
        """Whether validation has stopped improving."""
        return self.config.patience is not None and self.state.stale_validations >= self.config.patience

    @property
    def finished(self) -> bool:
        """Whether no update is left to make."""
        return self.state.step >= self.config.max_steps or self.out_of_patience

    def count(self, update: Indices, sums: Sums, seconds: float) -> None:
        """Add an update to the totals."""
        source, target = self.parts.plan.source_lengths[update], self.parts.plan.target_lengths[update]
        totals = replace(
            self.parts.costs.of(seconds),
            loss=sums.loss,
            nll=sums.nll,
            source_tokens=int(source.sum()),
            target_tokens=int(target.sum()),
            flops=sum(self.parts.flops(source, target).values()) if self.parts.flops else 0.0,
        )
        self.state.total.add(totals)
        self.state.window.add(totals)
        self.state.gradient_norm = sums.gradient_norm

    def skip(self, update: Indices, sums: Sums) -> None:
        """Count an update that is not finite.

        Raises:
            TrainingError: there were more than `--non-finite-budget`.
        """
        self.state.skipped += 1
        sentences = sorted(int(i) + 1 for i in update)
        shown = ", ".join(map(str, sentences[:8])) + (f", ... ({len(sentences)} in all)" if len(sentences) > 8 else "")
        what = (
            f"step {self.state.step}: loss {sums.loss:g} and gradient norm {sums.gradient_norm:g} are not finite; "
            f"sentences {shown} of the training corpus"
        )
        if self.state.skipped > self.config.non_finite_budget:
            raise TrainingError(
                f"{what}. {self.state.skipped} updates were not finite, more than --non-finite-budget "
                f"{self.config.non_finite_budget}. Last checkpoint: {self.newest or 'none'}. "
                "Try a lower --learning-rate-scale, --clip-norm 1, or --precision float32."
            )
        self.reporter.note(f"warning: {what}; the update is skipped ({self.state.skipped} so far)")

    def end_step(self, signal_number: int) -> None:
        """Validate, log and save if due; after a signal, save at once and stop.

        Raises:
            Interrupted: this rank or another received a signal.
        """
        state, main = self.state, self.world.is_main
        self.reporter.advance(state)
        save_due = main and self.save_interval.due(state.step)  # the main rank's clock decides for all
        validation_due = main and self.validation_interval is not None and self.validation_interval.due(state.step)
        stopping, save_due, validation_due = self.world.any([signal_number > 0, save_due, validation_due])
        last = state.step >= self.config.max_steps
        save = save_due or last
        # Without --validate-every, each checkpoint is validated; with it, the last one only if it is due.
        validate = self.parts.validate is not None and (validation_due if self.validation_interval else save)
        log = validate or last or state.step % self.config.log_every == 0
        due = {"validate": validate, "log": log, "save": save}
        state.pending = [action for action in ACTIONS if due[action]]
        if not stopping:
            self.do_pending()
            return
        self.save(self.directory.place("latest", state.step))
        received = signal.Signals(signal_number or signal.SIGTERM)  # 0: another rank received it
        raise Interrupted(
            f"stopped by {received.name} after step {state.step:,}; saved {self.newest}. "
            f"`nmt train --resume {self.directory.path}` resumes the run.",
            received,
        )

    def do_pending(self) -> None:
        """Do the pending actions: validate, log, save; keep the best checkpoint."""
        state, pending = self.state, self.state.pending
        state.pending = []
        values = self.validate() if "validate" in pending else {}
        if "log" in pending:
            self.log(values)
        improved = bool(values) and state.best_step == state.step
        if "save" in pending:
            self.save(self.directory.place("step", state.step))
        elif improved:
            self.save(self.directory.place("best", state.step))
        if improved and self.world.is_main:
            self.directory.keep_best(state.step)

    def validate(self) -> dict[str, float]:
        """Return the figures of a validation, the loss first, and record whether it is the best."""
        assert self.parts.validate is not None
        values = self.parts.validate()
        loss = next(iter(values.values()))
        state = self.state
        if math.isfinite(loss) and (state.best_loss is None or loss < state.best_loss):
            state.best_loss, state.best_step, state.stale_validations = loss, state.step, 0
        else:
            state.stale_validations += 1
        return values

    def log(self, values: Mapping[str, float]) -> None:
        """Write a line of metrics: the updates since the last line, and the figures of a validation."""
        record = self.reporter.record(self.state, self.parts.schedule(self.state.step), values)
        if self.world.is_main:
            self.directory.append_metrics(record)
        self.reporter.show(record)
        self.state.window = Totals()

    def save(self, place: Path) -> None:
        """Write a checkpoint of this step to `place`, unless it is there."""
        if self.world.is_main and not place.exists():
            scalars, tensors = optimizer_state.dump(self.parts.optimizer)
            training = checkpoint.TrainingState({"state": self.state.to_json(), "optimizer": scalars}, tensors)
            contents = checkpoint.Contents(**self.contents, step=self.state.step)
            checkpoint.save(place, contents, checkpoint.weights_of(self.parts.model), self.parts.task, training)
            self.directory.delete_old(self.config.keep_last)
        self.newest = place
        self.world.barrier()
