"""The training loop (section 5): updates, what is due after each of them, and resuming.

A resumed run gives the same weights, losses and scores, bit for bit, as one that was never
interrupted. When a signal stops a run, the state is saved with the actions still pending for the
last step, and the resumed run does these first. A killed run repeats the updates since its last
checkpoint; metrics logged after it are dropped.

While training goes on, a thread of the main rank writes the checkpoints, from copies in the host's
memory. At most one is being written. What ends a run is written at once, and all ranks wait for it.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from nmt_cli import checkpoint
from nmt_cli.data.corpus import Corpus
from nmt_cli.errors import Interrupted, TrainingError, command_line
from nmt_cli.task import Task
from nmt_cli.training import optimizer_state
from nmt_cli.training.costs import CostMeter, flops_of_update
from nmt_cli.training.length import Length
from nmt_cli.training.memory import explain_out_of_memory, fitting_micro_batches
from nmt_cli.training.observers import Observer
from nmt_cli.training.reporter import Reporter
from nmt_cli.training.run_directory import RunDirectory
from nmt_cli.training.signals import stop_signals
from nmt_cli.training.state import ACTIONS, RunState, Totals
from nmt_cli.training.trainer import Trainer
from nmt_cli.training.updates import Update
from nmt_cli.training.validation import validation

# Before the names of the weights that training goes on from, where an observer saves others.
RAW = "raw."


@dataclass(frozen=True)
class Uncounted:
    """An update that the device may still compute."""

    step: int
    update: Update
    # Waits for loss, nll and the square of the gradient's norm: see `Run.add`.
    sums: Callable[[], list[float]]


class Run:
    """The position of a run, what is due after each update, and what is saved.

    Args:
        task: of the text that the trainer's updates are made of.
        valid: the validation set, if there is one.
        length: of the whole run.
        contents: the fields of `checkpoint.Contents` except the step.
        out: the run's directory, which need not exist yet.
        quiet: report nothing, as ranks do other than the main one.
    """

    def __init__(
        self,
        trainer: Trainer,
        task: Task,
        valid: Corpus | None,
        length: Length,
        costs: CostMeter,
        contents: Mapping[str, Any],
        out: Path,
        quiet: bool,
    ) -> None:
        self.trainer, self.config, self.world = trainer, trainer.config, trainer.world
        self.model, self.corpus, self.plan = (
            trainer.model,
            trainer.updates.corpus,
            trainer.updates.plan,
        )
        self.task, self.valid, self.length, self.costs = task, valid, length, costs
        self.contents, self.directory, self.reporter = contents, RunDirectory(out), Reporter(quiet)
        self.state = RunState()
        self.save_interval, self.validation_interval = self.config.intervals()
        self.newest: Path | None = None  # the newest checkpoint; it may still be written
        self.flags = self.world.start_any([False] * 3)  # of the last step; see `agree`
        self.uncounted: Uncounted | None = None  # the update of the last step
        self.host_copies = trainer.fast.host_copies()
        self.clock = 0.0  # the time up to which the training is counted
        self.observers: list[Observer] = []

    def fit(self) -> None:
        """Train from the run's state to its end.

        Raises:
            Interrupted: a signal stopped the run; it is saved.
            TrainingError: too many updates were not finite, memory ran out, or a rank was lost.
        """
        self.model.train()
        count = self.trainer.updates.micro_batches if self.finished else self.choose_micro_batches()
        with (
            self.trainer.updates.following(count, self.state.epoch, self.state.position) as updates,
            stop_signals() as signals,
            self.reporter.display(self.state, self.length.steps),
        ):
            self.do_pending()
            while not self.finished:
                # Section 5.1: about 25,000 source and 25,000 target tokens.
                update = self.next(updates)
                with explain_out_of_memory([each.batch for each in update.share], count):
                    sums = self.trainer.update(update.share, self.state.step)
                    for observer in self.observers:
                        observer.updated(self.state.step)
                self.add(update, sums)
                self.end_step(signals)  # validate, log and save; section 6.1 averages what is saved
            self.save(self.directory.place("step", self.state.step))

    def choose_micro_batches(self) -> int:
        """Record and return the number of micro-batches: that with which as many ranks began, or
        one that fits.
        """
        state = self.state
        recorded = state.micro_batches if state.ranks == self.world.size else 0
        count = wanted = recorded or self.trainer.updates.micro_batches
        # One rank that is out of memory would leave the others of a divided model waiting.
        if self.trainer.fast.tries_memory and not self.config.model_parallel:
            count = fitting_micro_batches(self.trainer, wanted)
        if count > wanted:
            self.reporter.note(
                f"the GPU's memory is too small for larger micro-batches: {count} an update"
            )
        state.ranks, state.micro_batches = self.world.size, count
        return count

    def resume(self) -> bool:
        """Restore the newest undamaged checkpoint; return whether there is one."""
        folder = self.newest = self.directory.newest(self.reporter.note)
        if folder is not None:
            self.restore(folder)
            self.reporter.note(f"resuming from {folder}, step {self.state.step:,}")
            self.compare_validation()
        self.check_agreement()  # all ranks have read before anything is deleted
        if self.world.is_main:
            # A pending step is logged by `do_pending`.
            last_logged = self.state.step - bool(self.state.pending)
            self.directory.rewind(folder, last_logged)
            self.directory.delete_old(self.config.keep_last)
            if self.state.best is not None:
                self.directory.repair_best(self.state.best_step, self.reporter.note)
        for observer in self.observers:
            observer.started()
        return folder is not None

    def restore(self, folder: Path) -> None:
        """Load what `snapshot` has saved, in the order in which observers need it."""
        model, place = self.model, str(folder)
        checkpoint.assign_weights(model, checkpoint.load_weights(folder), place)
        for observer in self.observers:
            observer.resumed()
        saved = checkpoint.load_training(folder)
        raw = {
            name: saved.tensors.pop(name) for name in list(saved.tensors) if name.startswith(RAW)
        }
        if raw:
            weights = {name.removeprefix(RAW): weight for name, weight in raw.items()}
            checkpoint.assign_weights(model, weights, place)
        optimizer_state.restore(
            self.trainer.optimizer, saved.values["optimizer"], saved.tensors, place
        )
        self.trainer.scaler.load_state_dict(saved.values.get("scaler", {}))
        self.state = RunState.from_json(saved.values["state"], place)
        # Its fingerprint stays, though a newer version has more settings.
        self.contents = {**self.contents, "run": checkpoint.read_contents(folder).run}

    def check_agreement(self) -> None:
        """Wait for all ranks; raise a TrainingError unless all have read the same data and the same
        checkpoint.
        """
        self.world.barrier()
        read = self.state.step, self.corpus.fingerprint, self.validation_set
        if len(set(self.world.gather(read))) > 1:
            raise TrainingError(
                "the processes do not read the same files. With several machines, DATA must be the "
                "same on all, and "
                "--out a directory that they share"
            )

    def compare_validation(self) -> None:
        """Begin the best checkpoint and the patience anew if validation is not what they were
        measured by.
        """
        state = self.state
        if state.best is None or self.at_last_step:
            return
        if not self.validation_set:
            self.reporter.note(
                "warning: the data have no validation set now: the best checkpoint stays as it is"
            )
            return
        other = ""
        if self.config.best_by == "bleu" and state.tokenization != self.task.tokenization:
            other = f"tokenization of BLEU ({self.task.tokenization})"
        if state.validation_set not in ("", self.validation_set):
            other = "validation set"
        if other:
            self.reporter.note(
                f"warning: the {other} is another one: the best checkpoint and --patience begin "
                "anew"
            )
            state.best = None
            state.best_figures = {}
            state.stale_validations = 0

    @property
    def validation_set(self) -> str:
        """The fingerprint of the validation set, or "" without one."""
        return "" if self.valid is None else self.valid.fingerprint

    @property
    def out_of_patience(self) -> bool:
        return (
            self.config.patience is not None
            and self.state.stale_validations >= self.config.patience
        )

    @property
    def has_all_epochs(self) -> bool:
        return self.config.max_epochs is not None and self.state.epochs >= self.config.max_epochs

    @property
    def at_last_step(self) -> bool:
        return self.state.step >= self.config.max_steps or self.has_all_epochs

    @property
    def finished(self) -> bool:
        return self.at_last_step or self.out_of_patience

    def next(self, updates: Iterator[Update]) -> Update:
        """Return the next update, and move on to it; record how long its data was waited for."""
        began = time.perf_counter()
        if self.uncounted is None:  # nothing is being computed
            self.clock = began
        update = next(updates)
        waited = time.perf_counter() - began
        for totals in (self.state.total, self.state.window):
            totals.waiting += waited
        self.state.step += 1
        self.state.epoch, self.state.position = update.epoch, update.position + 1
        self.state.epochs = update.epoch + update.ends_epoch
        return update

    def add(self, update: Update, sums: Callable[[], list[float]]) -> None:
        """Add the update of this step, and count the one before it: a device never waits for the
        host.

        The function `sums` waits for what `Trainer.accumulate` returns, summed over all ranks.
        """
        self.count()
        self.uncounted = Uncounted(self.state.step, update, sums)

    def count(self) -> None:
        """Count the last update, if that was not done; before anything is validated, logged or
        saved.
        """
        last = self.uncounted
        if last is None:
            return
        self.uncounted = None
        loss, nll, square = last.sums()
        norm = math.sqrt(square)
        began, self.clock = self.clock, time.perf_counter()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            scaler = self.trainer.scaler
            if not (scaler.is_enabled() and math.isfinite(loss) and scaler.get_scale() >= 1):
                self.skip(last, loss, norm)  # else it has lowered the scale, and that is all
            return
        source, target = last.update.lengths
        totals = replace(
            self.costs.of(self.clock - began),
            loss=loss,
            nll=nll,
            source_tokens=int(source.sum()),
            target_tokens=int(target.sum()),
            flops=sum(flops_of_update(self.model, last.update.lengths).values()),
        )
        self.state.total.add(totals)
        self.state.window.add(totals)
        self.state.gradient_norm = norm

    def skip(self, last: Uncounted, loss: float, norm: float) -> None:
        """Count an update that is not finite; raise a TrainingError after more than
        `--non-finite-budget`.
        """
        self.state.skipped += 1
        sentences = sorted(last.update.sentences)
        shown = ", ".join(str(i + 1) for i in sentences[:8]) + (
            ", ..." if len(sentences) > 8 else ""
        )
        what = (
            f"step {last.step}: loss {loss:g} and gradient norm {norm:g} are not finite; "
            f"sentences {shown} of the training corpus"
        )
        if self.state.skipped > self.config.non_finite_budget:
            self.directory.wait()
            raise TrainingError(
                f"{what}. {self.state.skipped} updates were not finite, more than "
                "--non-finite-budget "
                f"{self.config.non_finite_budget}. Last checkpoint: {self.newest or 'none'}. "
                "Try a lower --learning-rate-scale, --clip-norm 1, or --precision float32."
            )
        self.reporter.note(f"warning: {what}; the update is skipped ({self.state.skipped} so far)")

    def end_step(self, signals: Sequence[int]) -> None:
        """Validate, log and save if due; if any rank has received `signals`, save and raise
        Interrupted.
        """
        self.directory.check()
        self.reporter.advance(self.state)
        main, every = self.world.is_main, self.validation_interval
        stopping, save_elapsed, validation_elapsed = self.agree(
            bool(signals),
            main and self.save_interval.elapsed(),
            main and every is not None and every.elapsed(),
        )
        self.state.pending = self.due(save_elapsed, validation_elapsed)
        if stopping:
            self.stop(signals)
        self.do_pending()

    def due(self, save_elapsed: bool, validation_elapsed: bool) -> list[str]:
        """Return the actions that are due after this step, where an interval of minutes may have
        elapsed.
        """
        step, every = self.state.step, self.validation_interval
        save = save_elapsed or self.save_interval.ends_at(step) or self.at_last_step
        # Without --validate-every, each checkpoint is validated. With it, the last one only if it
        # is due.
        validate = save if every is None else validation_elapsed or every.ends_at(step)
        validate = validate and self.valid is not None
        log = validate or self.at_last_step or step % self.config.log_every == 0
        actions = {"validate": validate, "log": log, "save": save}
        return [action for action in ACTIONS if actions[action]]

    def stop(self, signals: Sequence[int]) -> NoReturn:
        """Save the run with its pending actions, and raise Interrupted."""
        self.count()
        self.save(self.directory.place("latest", self.state.step), ending=True)
        # none: another rank received it.
        received = signal.Signals(signals[0] if signals else signal.SIGTERM)
        raise Interrupted(
            f"stopped by {received.name} after step {self.state.step:,}; saved {self.newest}. "
            f"`{command_line('train', '--resume', self.directory.path)}` resumes the run.",
            received,
        )

    def agree(self, *flags: bool) -> list[bool]:
        """Return for each flag whether a rank has set it. All ranks get the same answer at the same
        step.

        With several ranks, it is the answer for the flags of the step before, so that no rank waits
        for another: they were exchanged during this step. Those of the last step are not used.
        """
        flags_before, self.flags = self.flags, self.world.start_any(flags)
        return (self.flags if self.world.size == 1 else flags_before)()

    def do_pending(self) -> None:
        state, pending = self.state, self.state.pending
        state.pending = []
        if pending:
            self.count()
        values = self.validate() if "validate" in pending else {}
        if "log" in pending:
            self.log(values)
        improved = bool(values) and state.best is not None and state.best_step == state.step
        if "save" in pending:
            self.save(self.directory.place("step", state.step), improved)
        elif improved:
            self.save(self.directory.place("best", state.step), improved)

    def validate(self) -> dict[str, Any]:
        """Return the values of a validation, and record whether it is the best; all ranks go by the
        main rank's.
        """
        if self.valid is None:  # the run was resumed with data that has no validation set
            return {}
        figures, values = validation(self.trainer, self.task, self.valid, self.observers)
        self.state.validation_set = self.validation_set
        self.state.tokenization = self.task.tokenization
        self.state.judge(self.world.gather(figures)[0], self.config.best_by)
        return {**{f"validation_{name}": value for name, value in figures.items()}, **values}

    def log(self, values: Mapping[str, Any]) -> None:
        rate = self.trainer.schedule(self.state.step) if self.state.step else 0.0
        record = self.reporter.record(self.state, rate, values)
        self.reporter.show(record)
        if self.world.is_main:
            self.directory.append_metrics(record)
            for observer in self.observers:
                observer.logged(record)
        self.state.window = Totals()

    def save(self, place: Path, best: bool = False, ending: bool = False) -> None:
        """Save this step to `place`, in a thread that raises its errors later; keep it as the best
        one if `best`.

        If the run is `ending` or finished, it is written when this returns, on all ranks.
        """
        ending = ending or self.finished
        if self.world.is_main:
            self.directory.wait()  # first: memory holds the copies of one checkpoint only
        # Parameters may be divided.
        write = self.snapshot(place, best, copy=self.world.is_main and not ending)
        if self.world.is_main:
            if ending:
                write()
            else:
                self.directory.write(write)
        self.newest = place
        if ending:
            self.world.barrier()

    def snapshot(self, place: Path, best: bool, copy: bool) -> Callable[[], None]:
        """Return a function that writes this step to `place`; with `copy` at any time, else before
        the next update.
        """
        step, keep = self.state.step, self.config.keep_last
        weights = trained = checkpoint.weights_of(self.model)
        scalars, moments = optimizer_state.dump(self.trainer.optimizer)
        for observer in self.observers:
            weights = observer.saved(weights)
        if weights is not trained:
            moments |= {f"{RAW}{name}": weight for name, weight in trained.items()}
        wait = None
        if copy:
            (weights, moments), wait = self.host_copies.start(weights, moments)
        values = {
            "state": asdict(self.state),
            "optimizer": scalars,
            "scaler": self.trainer.scaler.state_dict(),
        }
        training = checkpoint.SavedTraining(values, moments)
        contents = checkpoint.Contents(**self.contents, step=step)

        def write() -> None:
            if wait is not None:
                wait()
            if not place.exists():
                checkpoint.save(place, contents, weights, self.task, training)
                self.directory.delete_old(keep)
            if best:
                self.directory.keep_best(step)

        return write
