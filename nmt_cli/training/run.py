"""The training loop (section 5): updates, what is due after each of them, and resuming.

A resumed run gives the same weights, losses and scores, bit for bit, as one that was never
interrupted. When a signal stops a run, the state is saved with the actions still pending for the
last step, and the resumed run does these first. A killed run repeats the updates since its last
checkpoint, and the metrics logged after it are dropped.

While training goes on, a thread of the main rank writes the checkpoints, from copies in the host's
memory. At most one is being written. What ends a run is written at once, and all ranks wait for it.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
from nmt_cli.weights import (
    SavedTraining,
    assign_weights,
    load_training,
    load_weights,
    save_checkpoint,
    weights_of,
)

# Before the names of the weights that training goes on from, where an observer saves others.
RAW = "raw."


@dataclass(frozen=True)
class Uncounted:
    """An update that the device may still compute."""

    step: int
    update: Update
    # Waits for the loss, the nll and the square of the gradient's norm over all ranks.
    sums: Callable[[], list[float]]


class Run:
    """The position of a run, what is due after each update, and what is saved.

    Args:
        task: the task of the trainer's text.
        valid: the validation set, if there is one.
        length: the length of the whole run.
        contents: the fields of `checkpoint.Contents` except the step.
        out: the run's directory, which need not exist yet.
        quiet: report nothing, as on ranks other than the main one.
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
        self.trainer = trainer
        self.config = trainer.config
        self.world = trainer.world
        self.model = trainer.model
        self.corpus = trainer.updates.corpus
        self.plan = trainer.updates.plan
        self.task = task
        self.valid = valid
        self.length = length
        self.costs = costs
        self.contents = contents
        self.directory = RunDirectory(out)
        self.reporter = Reporter(quiet)
        self.state = RunState()
        self.save_interval, self.validation_interval = self.config.intervals()
        self.newest: Path | None = None  # the newest checkpoint, which may still be being written
        self.flags = self.world.start_any([False] * 3)  # of the last step, for `agree`
        self.uncounted: Uncounted | None = None  # the update of the last step, for `count`
        self.host_copies = trainer.fast.host_copies()
        self.clock = 0.0  # the time up to which the training is counted
        self.observers: list[Observer] = []

    def fit(self) -> None:
        """Train from the run's state to its end.

        Raises:
            Interrupted: a signal stopped the run, which is saved.
            TrainingError: too many updates were not finite, memory ran out, or a rank was lost.
        """
        self.model.train()
        count = self.trainer.updates.micro_batches
        if not self.finished:
            count = self.choose_micro_batches()
        following = self.trainer.updates.following(count, self.state.epoch, self.state.position)
        with (
            following as updates,
            stop_signals() as signals,
            self.reporter.display(self.state, self.length.steps),
        ):
            self.do_pending()
            while not self.finished:
                # Section 5.1: about 25,000 source and 25,000 target tokens.
                update = self.next_update(updates)
                with explain_out_of_memory(update.batches, count):
                    # Section 5.3: equation 3 and Adam. Section 5.4: dropout, label smoothing.
                    sums = self.trainer.update(update.share, self.state.step)
                    for observer in self.observers:
                        observer.updated(self.state.step)
                self.add(update, sums)
                # Validate, log and save. Section 6.1 averages what is saved.
                self.end_step(signals)
            self.save(self.directory.place("step", self.state.step))

    def choose_micro_batches(self) -> int:
        """Record and return the number of micro-batches of an update, which fit into memory.

        It stays as the run began, as long as there are as many ranks.
        """
        state = self.state
        wanted = self.trainer.updates.micro_batches
        if state.ranks == self.world.size and state.micro_batches:
            wanted = state.micro_batches
        count = wanted
        # One rank that is out of memory would leave the others of a divided model waiting.
        if self.trainer.fast.tries_memory and not self.config.model_parallel:
            count = fitting_micro_batches(self.trainer, wanted)
        if count > wanted:
            self.reporter.note(
                f"the GPU's memory is too small for larger micro-batches: {count} an update"
            )
        state.ranks = self.world.size
        state.micro_batches = count
        return count

    def resume(self) -> bool:
        """Restore the newest undamaged checkpoint, and return whether there is one."""
        folder = self.directory.newest(self.reporter.note)
        self.newest = folder
        if folder is not None:
            self.restore(folder)
            self.reporter.note(f"resuming from {folder}, step {self.state.step:,}")
            self.compare_validation()
        self.check_agreement()  # all ranks have read before anything is deleted
        if self.world.is_main:
            last_logged = self.state.step
            if self.state.pending:  # `do_pending` logs this step
                last_logged -= 1
            self.directory.rewind(folder, last_logged)
            self.directory.delete_old(self.config.keep_last)
            if self.state.best is not None:
                self.directory.repair_best(self.state.best_step, self.reporter.note)
        for observer in self.observers:
            observer.started()
        return folder is not None

    def restore(self, folder: Path) -> None:
        """Load what `snapshot` has saved, in the order in which observers need it."""
        place = str(folder)
        assign_weights(self.model, load_weights(folder), place)
        for observer in self.observers:
            observer.resumed()
        saved = load_training(folder)
        raw_weights = {}
        for name in list(saved.tensors):
            if name.startswith(RAW):
                raw_weights[name.removeprefix(RAW)] = saved.tensors.pop(name)
        if raw_weights:
            assign_weights(self.model, raw_weights, place)
        optimizer_state.restore(
            self.trainer.optimizer, saved.values["optimizer"], saved.tensors, place
        )
        self.trainer.scaler.load_state_dict(saved.values.get("scaler", {}))
        self.state = RunState.from_json(saved.values["state"], place)
        # The fingerprint stays, although a newer version has more settings.
        self.contents = {**self.contents, "run": checkpoint.read_contents(folder).run}

    def check_agreement(self) -> None:
        """Wait for all ranks.

        Raises:
            TrainingError: they have not read the same data and the same checkpoint.
        """
        self.world.barrier()
        read = (self.state.step, self.corpus.fingerprint, self.validation_set)
        if len(set(self.world.gather(read))) > 1:
            raise TrainingError(
                "the processes do not read the same files. With several machines, DATA must be the "
                "same on all, and --out a directory that they share"
            )

    def compare_validation(self) -> None:
        """Forget the best checkpoint and reset the patience if validation has changed."""
        state = self.state
        if state.best is None or self.at_last_step:
            return
        if not self.validation_set:
            self.reporter.note(
                "warning: the data have no validation set now: the best checkpoint stays as it is"
            )
            return
        if state.validation_set not in ("", self.validation_set):
            changed = "validation set"
        elif self.config.measures[0] == "bleu" and state.tokenization != self.task.tokenization:
            changed = f"tokenization of BLEU ({self.task.tokenization})"
        else:
            return
        self.reporter.note(
            f"warning: the {changed} is another one: the best checkpoint and --patience begin anew"
        )
        state.best = None
        state.best_figures = {}
        state.stale_validations = 0

    @property
    def validation_set(self) -> str:
        """The fingerprint of the validation set, or "" without one."""
        if self.valid is None:
            return ""
        return self.valid.fingerprint

    @property
    def out_of_patience(self) -> bool:
        patience = self.config.patience
        return patience is not None and self.state.stale_validations >= patience

    @property
    def has_all_epochs(self) -> bool:
        max_epochs = self.config.max_epochs
        return max_epochs is not None and self.state.epochs >= max_epochs

    @property
    def at_last_step(self) -> bool:
        return self.state.step >= self.config.max_steps or self.has_all_epochs

    @property
    def finished(self) -> bool:
        return self.at_last_step or self.out_of_patience

    def next_update(self, updates: Iterator[Update]) -> Update:
        """Return the next update, and move on to it. The wait for its data is recorded."""
        state = self.state
        start = time.perf_counter()
        if self.uncounted is None:  # nothing is being computed
            self.clock = start
        update = next(updates)
        waited = time.perf_counter() - start
        state.total.waiting += waited
        state.window.waiting += waited
        state.step += 1
        state.epoch = update.epoch
        state.position = update.position + 1
        state.epochs = update.epoch
        if update.ends_epoch:
            state.epochs += 1
        return update

    def add(self, update: Update, sums: Callable[[], list[float]]) -> None:
        """Add the update of this step, whose `sums` are from `Trainer.update`."""
        # The update before is counted only now, while the device computes this one.
        self.count()
        self.uncounted = Uncounted(self.state.step, update, sums)

    def count(self) -> None:
        """Count the last update, before anything is validated, logged or saved."""
        last = self.uncounted
        if last is None:
            return
        self.uncounted = None
        loss, nll, square = last.sums()
        norm = math.sqrt(square)
        now = time.perf_counter()
        seconds = now - self.clock
        self.clock = now
        if not math.isfinite(loss) or not math.isfinite(norm):
            scaler = self.trainer.scaler
            # An overflow in float16 has lowered the scale, and that is all. Below a scale of 1, it
            # is not the scale that overflows.
            overflow = scaler.is_enabled() and math.isfinite(loss) and scaler.get_scale() >= 1
            if not overflow:
                self.skip(last, loss, norm)
            return
        totals = self.costs.of(seconds)
        totals.loss = loss
        totals.nll = nll
        source_lengths, target_lengths = last.update.lengths
        totals.source_tokens = int(source_lengths.sum())
        totals.target_tokens = int(target_lengths.sum())
        totals.flops = sum(flops_of_update(self.model, last.update.lengths).values())
        self.state.total.add(totals)
        self.state.window.add(totals)
        self.state.gradient_norm = norm

    def skip(self, last: Uncounted, loss: float, norm: float) -> None:
        """Count an update that is not finite.

        Raises:
            TrainingError: there were more than `--non-finite-budget`.
        """
        skipped = self.state.skipped + 1
        self.state.skipped = skipped
        budget = self.config.non_finite_budget
        sentences = sorted(last.update.sentences)
        numbers = [str(sentence + 1) for sentence in sentences[:8]]
        if len(sentences) > 8:
            numbers.append("...")
        what = (
            f"step {last.step}: loss {loss:g} and gradient norm {norm:g} are not finite; "
            f"sentences {', '.join(numbers)} of the training corpus"
        )
        if skipped > budget:
            self.directory.wait()
            raise TrainingError(
                f"{what}. {skipped} updates were not finite, more than --non-finite-budget "
                f"{budget}. Last checkpoint: {self.newest or 'none'}. "
                "Try a lower --learning-rate-scale, --clip-norm 1, or --precision float32."
            )
        self.reporter.note(f"warning: {what}; the update is skipped ({skipped} so far)")

    def end_step(self, signals: Sequence[int]) -> None:
        """Validate, log and save, if due.

        Raises:
            Interrupted: a rank has received `signals`, and the run is saved.
        """
        self.directory.check()
        self.reporter.advance(self.state)
        save_elapsed = validation_elapsed = False
        if self.world.is_main:  # whose clock decides
            save_elapsed = self.save_interval.elapsed()
            if self.validation_interval is not None:
                validation_elapsed = self.validation_interval.elapsed()
        stopping, save_elapsed, validation_elapsed = self.agree(
            bool(signals), save_elapsed, validation_elapsed
        )
        self.state.pending = self.due(save_elapsed, validation_elapsed)
        if stopping:
            self.stop(signals)
        self.do_pending()

    def due(self, save_elapsed: bool, validation_elapsed: bool) -> list[str]:
        """Return the actions that are due after this step.

        Args:
            save_elapsed: the minutes of --save-every are over.
            validation_elapsed: the minutes of --validate-every are over.
        """
        step = self.state.step
        save = save_elapsed or self.save_interval.ends_at(step) or self.at_last_step
        if self.valid is None:
            validate = False
        elif self.validation_interval is None:  # each checkpoint is validated
            validate = save
        else:
            validate = validation_elapsed or self.validation_interval.ends_at(step)
        log = validate or self.at_last_step or step % self.config.log_every == 0
        is_due = {"validate": validate, "log": log, "save": save}
        return [action for action in ACTIONS if is_due[action]]

    def stop(self, signals: Sequence[int]) -> NoReturn:
        """Save the run with its pending actions, and raise Interrupted."""
        self.count()
        self.save(self.directory.place("latest", self.state.step), ending=True)
        received = signal.SIGTERM  # if another rank received the signal
        if signals:
            received = signal.Signals(signals[0])
        raise Interrupted(
            f"stopped by {received.name} after step {self.state.step:,}; saved {self.newest}. "
            f"`{command_line('train', '--resume', self.directory.path)}` resumes the run.",
            received,
        )

    def agree(self, *flags: bool) -> list[bool]:
        """Return for each flag whether a rank has set it, the same on all ranks.

        With several ranks, these are the flags of the step before. They were exchanged during this
        step, so that no rank waits for another. The flags of the run's last step are not used.
        """
        flags_before = self.flags
        self.flags = self.world.start_any(flags)
        if self.world.size == 1:
            return self.flags()
        return flags_before()

    def do_pending(self) -> None:
        """Do the actions that are due after the last step."""
        state = self.state
        pending = state.pending
        if not pending:
            return
        state.pending = []
        self.count()
        values: dict[str, Any] = {}
        if "validate" in pending:
            values = self.validate()
        if "log" in pending:
            self.log(values)
        improved = bool(values) and state.best is not None and state.best_step == state.step
        if "save" in pending:
            self.save(self.directory.place("step", state.step), improved)
        elif improved:
            self.save(self.directory.place("best", state.step), improved)

    def validate(self) -> dict[str, Any]:
        """Return the values of a validation, and record whether it is the best."""
        if self.valid is None:  # the run was resumed with data that has no validation set
            return {}
        figures, values = validation(self.trainer, self.task, self.valid, self.observers)
        self.state.validation_set = self.validation_set
        self.state.tokenization = self.task.tokenization
        figures_of_main = self.world.gather(figures)[0]  # all ranks decide alike
        self.state.judge(figures_of_main, self.config.measures[0])
        return {f"validation_{name}": value for name, value in figures.items()} | values

    def log(self, values: Mapping[str, Any]) -> None:
        """Write a line of metrics, with the `values` of a validation."""
        rate = 0.0
        if self.state.step:
            rate = self.trainer.schedule(self.state.step)
        record = self.reporter.record(self.state, rate, values)
        self.reporter.show(record)
        if self.world.is_main:
            self.directory.append_metrics(record)
            for observer in self.observers:
                observer.logged(record)
        self.state.window = Totals()

    def save(self, place: Path, best: bool = False, ending: bool = False) -> None:
        """Save this step to `place`, in a thread, whose errors are raised by a later call.

        Args:
            best: keep it as the best checkpoint.
            ending: it has to be written when this returns, on all ranks, as when a run is finished.
        """
        ending = ending or self.finished
        if self.world.is_main:
            self.directory.wait()  # first: memory holds the copies of one checkpoint only
        # On all ranks: they may divide parameters.
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
        """Return a function that writes this step to `place`.

        With `copy`, it may be called at any time, else only before the next update.
        """
        step = self.state.step
        raw_weights = weights_of(self.model)
        scalars, moments = optimizer_state.dump(self.trainer.optimizer)
        weights = raw_weights
        for observer in self.observers:
            weights = observer.saved(weights)
        if weights is not raw_weights:
            for name, weight in raw_weights.items():
                moments[f"{RAW}{name}"] = weight
        wait = None
        if copy:
            (weights, moments), wait = self.host_copies.start(weights, moments)
        values = {
            "state": asdict(self.state),
            "optimizer": scalars,
            "scaler": self.trainer.scaler.state_dict(),
        }
        training = SavedTraining(values, moments)
        contents = checkpoint.Contents(**self.contents, step=step)

        def write() -> None:
            if wait is not None:
                wait()
            if not place.exists():
                save_checkpoint(place, contents, weights, self.task, training)
                self.directory.delete_old(self.config.keep_last)
            if best:
                self.directory.keep_best(step)

        return write
