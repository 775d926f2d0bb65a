"""The training loop: section 5 of the paper, and what keeps a long run safe around it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt_cli import checkpoint
from nmt_cli.data.batching import BatchPlan, Indices, load_batch
from nmt_cli.data.corpus import Corpus
from nmt_cli.device import World, autocast, is_out_of_memory
from nmt_cli.errors import Interrupted, TrainingError
from nmt_cli.interfaces import Criterion, Loss, Schedule, Task
from nmt_cli.training import optimizer_state
from nmt_cli.training.costs import CostMeter
from nmt_cli.training.reporter import Reporter
from nmt_cli.training.run_folder import RunFolder
from nmt_cli.training.settings import Interval, TrainingConfig
from nmt_cli.training.signals import StopRequest
from nmt_cli.training.state import Progress, Window


@dataclass(frozen=True)
class Parts:
    """What a trainer drives; `commands/train.py` builds them and introduces them to each other."""

    model: Any
    criterion: Criterion
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    task: Task
    corpus: Corpus
    plan: BatchPlan
    costs: CostMeter
    validate: Callable[[], dict[str, float]] | None  # the first value is the loss that chooses the best checkpoint
    flops: Callable[[Indices, Indices], dict[str, float]] | None = None  # of source and target lengths, by part


@dataclass(frozen=True)
class Sums:
    """One update, over all micro-batches and ranks."""

    loss: float
    nll: float
    gradient_norm: float
    stop: bool  # whether a signal asked any rank to stop


class Trainer:
    """Trains until `max_steps`, until validation stops improving, or until a signal asks it to stop.

    Args:
        contents: what a checkpoint says of the model; its step is filled in here.
    """

    def __init__(
        self,
        parts: Parts,
        config: TrainingConfig,
        world: World,
        run: RunFolder,
        reporter: Reporter,
        contents: Mapping[str, Any],
    ) -> None:
        self.parts, self.config, self.world, self.run, self.reporter = parts, config, world, run, reporter
        self.contents = contents
        self.model, self.optimizer = parts.model, parts.optimizer
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.progress = Progress()
        self.save_interval = Interval.parse(config.save_every, "--save-every")
        every = config.validate_every
        self.validation_interval = None if every is None else Interval.parse(every, "--validate-every")
        self.last_time = {"save": time.monotonic(), "validate": time.monotonic()}
        self.saved_in: Path | None = None  # the newest checkpoint
        self.left: Sequence[str] = ()  # what a signal kept the newest step from: "validate", "save"

    def resume(self) -> bool:
        """Goes back to the newest whole checkpoint, where there is one; says whether there was."""
        folder = self.run.newest(self.reporter.note)
        if folder is None:
            if self.world.is_main:
                self.run.forget_after(0)
            return False
        checkpoint.assign_weights(self.model, checkpoint.load_weights(folder), str(folder))
        state = checkpoint.load_training(folder)
        optimizer_state.restore(self.optimizer, state.values["optimizer"], state.tensors, str(folder))
        self.progress = Progress.from_json(state.values["progress"], str(folder))
        if self.progress.assume_spent(self.parts.costs):
            self.reporter.note("this checkpoint does not say what its steps cost: they count as done by these devices")
        self.saved_in, self.left = folder, state.values.get("left", [])
        # A run keeps its name, though a later version may make another of the same settings.
        self.contents = {**self.contents, "run": checkpoint.read_contents(folder).run}
        self.world.barrier()  # nobody deletes what another rank still reads
        if self.world.is_main:
            self.tidy()
        self.reporter.note(f"resuming from {folder}, step {self.progress.step:,}")
        return True

    def tidy(self) -> None:
        """Does what the last save was kept from doing, and undoes what came after it."""
        self.run.forget_after(self.progress.step, reported=not self.left)
        self.run.forget_old(self.config.keep_last)
        if self.progress.best_step:
            self.run.mend_best(self.progress.best_step, self.reporter.note)

    def fit(self) -> None:
        """The loop.

        Raises:
            Interrupted: a signal came; the run was saved.
            TrainingError: too many updates were not finite, memory ran out, or a process was lost.
        """
        self.model.train()
        if takes_a_trial(self.world):
            self.try_largest()
        with StopRequest() as request, self.reporter.display(self.progress):
            if self.left and self.complete_step(saving="save" in self.left, validating="validate" in self.left):
                return
            for update in self.updates():
                self.progress.step += 1
                self.set_rate()
                sums = self.step(update, request)
                finished = self.keep_up(stopping=sums.stop)
                if sums.stop:
                    self.leave(request)
                if finished:
                    return

    def finished(self) -> str:
        """How to go on where the run is at its end; nothing where it is not."""
        patience = self.config.patience
        if self.left:
            return ""
        if self.progress.step >= self.config.max_steps:
            return "give a larger --max-steps to go on"
        if patience is not None and self.progress.stale_validations >= patience:
            return f"{self.progress.stale_validations} validations were no better; give a larger --patience to go on"
        return ""

    def try_largest(self) -> None:
        """Runs what takes most memory, and drops the gradients: too small a device is found out before the first step.

        Raises:
            TrainingError: the memory does not suffice; the message says for what.
        """
        plan = self.parts.plan
        parts = [indices for update in plan.epoch(self.progress.epoch) for indices in update]
        widest = max(parts, key=lambda indices: len(indices) * plan.lengths(indices).sum())
        longest = max(parts, key=lambda indices: len(indices) * int((plan.lengths(indices) ** 2).sum()))  # attention
        for indices in (widest, longest):
            with self.memory_for([indices]):
                # Adam's two moments come into being only with the first step.
                moments = [] if self.optimizer.state else [torch.empty_like(p) for p in 2 * self.parameters]
                self.learn_from(indices, tokens=1)
                del moments
        self.optimizer.zero_grad(set_to_none=True)

    def updates(self) -> Iterator[list[Indices]]:
        """The updates of this and all further epochs, from the cursor on; moves the cursor."""
        while True:
            updates = self.parts.plan.epoch(self.progress.epoch)
            while self.progress.position < len(updates):
                self.progress.position += 1
                yield updates[self.progress.position - 1]
            self.progress.epoch += 1
            self.progress.position = 0

    def set_rate(self) -> None:
        """The learning rate is a pure function of the step (equation 3)."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.parts.schedule(self.progress.step)

    def step(self, update: Sequence[Indices], request: StopRequest) -> Sums:
        """One update of the weights, unless its gradient is not finite."""
        began = time.perf_counter()
        with self.memory_for(update):
            losses = self.accumulate(update)
            sums = self.reduce(losses, request)
        finite = np.isfinite([sums.loss, sums.gradient_norm]).all()
        if finite:
            if self.config.clip_norm:
                torch.nn.utils.clip_grads_with_norm_(
                    self.parameters, self.config.clip_norm, torch.tensor(sums.gradient_norm)
                )
            with self.memory_for(update):
                self.optimizer.step()
            self.progress.count(self.counted(update, sums, time.perf_counter() - began))
        else:
            self.skip(update, sums)
        self.reporter.advance(self.progress)
        return sums

    def counted(self, update: Sequence[Indices], sums: Sums, seconds: float) -> Window:
        """What one update adds to the counters."""
        indices = np.concatenate(update)
        source, target = self.parts.plan.source_lengths[indices], self.parts.plan.target_lengths[indices]
        flops = sum(self.parts.flops(source, target).values()) if self.parts.flops else 0.0
        return Window(
            steps=1,
            loss=sums.loss,
            nll=sums.nll,
            target_tokens=int(target.sum()),
            source_tokens=int(source.sum()),
            seconds=seconds,
            spent=self.parts.costs.of(seconds),
            flops=flops,
            gradient_norm=sums.gradient_norm,
        )

    def accumulate(self, update: Sequence[Indices]) -> Tensor:
        """Gradients of this rank's micro-batches, and [loss, nll] summed over their tokens.

        The loss is divided once, by the real tokens of the whole update over all ranks.
        """
        self.optimizer.zero_grad(set_to_none=True)
        tokens = self.parts.plan.target_tokens(update)
        losses = torch.zeros(2, dtype=torch.float64, device=self.world.device)
        for number in range(self.world.rank, len(update), self.world.size):
            seed_dropout(self.config.seed, self.progress.step, number)
            loss = self.learn_from(update[number], tokens)
            losses += torch.stack([loss.total.detach().double(), loss.nll.detach().double()])
        return losses

    def learn_from(self, indices: Indices, tokens: int) -> Loss:
        """Adds the gradient of a micro-batch's loss, divided by `tokens`."""
        batch = load_batch(self.parts.corpus, indices).to(self.world.device)
        with autocast(self.world.device, self.config.precision):
            loss = self.parts.criterion(self.model, batch)
        (loss.total / tokens).backward()  # type: ignore[no-untyped-call]
        return loss

    @contextlib.contextmanager
    def memory_for(self, update: Sequence[Indices]) -> Iterator[None]:
        """Turns a want of memory into an error that names what it was wanted for."""
        try:
            yield
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise TrainingError(out_of_memory(self.parts.plan, update)) from error

    def reduce(self, losses: Tensor, request: StopRequest) -> Sums:
        """Sums gradients and losses over all ranks; all of them come to the same decision about stopping."""
        if self.world.size > 1:
            reduce_gradients(self.parameters, self.world)
        summed = self.world.sum(torch.cat([losses, losses.new_tensor([float(request.signal_number > 0)])]))
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        loss, nll, stop, gradient_norm = torch.cat([summed, norm.double()[None]]).tolist()
        return Sums(loss, nll, gradient_norm, stop > 0)

    def skip(self, update: Sequence[Indices], sums: Sums) -> None:
        """Counts an update that was not finite, and gives up when there were too many."""
        self.progress.skipped += 1
        self.optimizer.zero_grad(set_to_none=True)
        sentences = sorted(int(i) + 1 for indices in update for i in indices)
        shown = ", ".join(map(str, sentences[:8])) + (f", ... ({len(sentences)} in all)" if len(sentences) > 8 else "")
        what = (
            f"step {self.progress.step}: loss {sums.loss:g}, gradient norm {sums.gradient_norm:g}: not finite; "
            f"sentences {shown} of the training corpus"
        )
        if self.progress.skipped > self.config.non_finite_budget:
            kept = self.saved_in or "none yet"
            raise TrainingError(
                f"{what}. This was number {self.progress.skipped}, more than --non-finite-budget "
                f"{self.config.non_finite_budget}: the run stops. "
                f"Last good checkpoint: {kept}. Try a lower --learning-rate-scale, --clip-norm 1, or --precision "
                f"float32."
            )
        self.reporter.note(f"warning: {what}; the update is skipped ({self.progress.skipped} so far)")

    def keep_up(self, stopping: bool) -> bool:
        """Reports, validates and saves when it is time; says whether the run is at its end.

        Whoever stops is in a hurry: a validation is then left to the start that goes on from here.
        """
        step = self.progress.step
        saving = self.due("save", self.save_interval) or step >= self.config.max_steps
        validating = self.due("validate", self.validation_interval) if self.validation_interval else saving
        if stopping and validating and self.parts.validate is not None:
            self.left = ["validate", "save"] if saving else ["validate"]
            self.save(self.run.latest_of(step))
            return False
        finished = self.complete_step(saving, validating)
        if stopping and self.saved_in != self.run.folder_of(step):
            self.save(self.run.latest_of(step))
        return finished

    def complete_step(self, saving: bool, validating: bool) -> bool:
        """Validates, reports and saves what this step is to; says whether the run is at its end."""
        step = self.progress.step
        if self.left:
            self.left, self.saved_in = (), None
        values = self.validate() if validating else {}
        if values or step >= self.config.max_steps or step % self.config.log_every == 0:
            self.report(values)
        improved = bool(values) and self.progress.best_step == step
        finished = bool(self.finished())
        if saving or finished:
            self.save(self.run.folder_of(step))
        elif improved:
            self.save(self.run.latest_of(step))
        if improved and self.world.is_main:
            self.run.keep_best(step)
        return finished

    def due(self, what: str, interval: Interval) -> bool:
        """Whether it is time; where it goes by the clock, the main process's decides for all."""
        now = time.monotonic()
        due = interval.due(self.progress.step, now - self.last_time[what])
        if interval.seconds is not None:
            due = self.world.sum(torch.tensor([float(due and self.world.is_main)], device=self.world.device)).item() > 0
        if due:
            self.last_time[what] = now
        return due

    def validate(self) -> dict[str, float]:
        """The validation's figures, the loss first; remembers whether it is the best so far."""
        if self.parts.validate is None:
            return {}
        values = self.parts.validate()
        loss = next(iter(values.values()))
        if math.isfinite(loss) and (self.progress.best_loss is None or loss < self.progress.best_loss):
            self.progress.best_loss, self.progress.best_step, self.progress.stale_validations = (
                loss,
                self.progress.step,
                0,
            )
        else:
            self.progress.stale_validations += 1
        return values

    def report(self, values: Mapping[str, float]) -> None:
        """A line of metrics: the updates since the last report, and `values` besides."""
        record = self.reporter.record(self.progress, self.parts.schedule(self.progress.step), values)
        if self.world.is_main:
            self.run.append_metrics(record)
        self.reporter.show(record)
        self.progress.window = Window()

    def save(self, folder: Path) -> None:
        """Writes a checkpoint of this step, unless it stands already."""
        if self.world.is_main and self.saved_in != folder:
            scalars, tensors = optimizer_state.dump(self.optimizer)
            values: dict[str, Any] = {"progress": self.progress.to_json(), "optimizer": scalars}
            if self.left:
                values["left"] = self.left
            contents = checkpoint.Contents(**self.contents, step=self.progress.step)
            weights = checkpoint.weights_of(self.model)
            checkpoint.save(folder, contents, weights, self.parts.task, checkpoint.TrainingState(values, tensors))
            self.run.forget_old(self.config.keep_last)
        self.saved_in = folder
        self.world.barrier()

    def leave(self, request: StopRequest) -> None:
        """Ends the run after a signal."""
        number = request.signal_number or 15  # another rank heard it
        raise Interrupted(
            f"stopped by signal {number} after step {self.progress.step:,}; saved {self.saved_in}. "
            "Run the same command again to go on.",
            number,
        )


def takes_a_trial(world: World) -> bool:
    """Whether memory is tried out first: on GPUs, whose memory is small and is not swapped."""
    return world.device.type == "cuda"


def seed_dropout(seed: int, step: int, micro_batch: int) -> None:
    """Keys dropout's generator by place, so that neither a restart nor the number of processes changes its draws."""
    key = np.random.SeedSequence((seed, step, micro_batch)).generate_state(1, np.uint64)[0]
    torch.manual_seed(int(key) >> 1)


def reduce_gradients(parameters: Sequence[torch.nn.Parameter], world: World) -> None:
    """Sums every gradient over all ranks, in one flat buffer; a rank without micro-batches gives zeros."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = world.sum(torch.cat([gradient.flatten() for gradient in gradients]))
    for parameter, summed in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
        parameter.grad = summed.view_as(parameter)


def out_of_memory(plan: BatchPlan, update: Sequence[Indices]) -> str:
    """What to tell a user whose device has not the memory for `update`."""
    largest = max(update, key=lambda indices: int(plan.lengths(indices).sum()) * len(indices))
    sentences, source, target = (
        len(largest),
        int(plan.source_lengths[largest].max()),
        int(plan.target_lengths[largest].max()),
    )
    return (
        f"out of memory on a micro-batch of {sentences} sentences, {source} source and {target} target tokens each. "
        f"The update's {plan.batch_tokens} tokens are in {plan.micro_batches} micro-batches: try --micro-batches "
        f"{2 * plan.micro_batches}. Updates stay as large, but the plan becomes another: it needs a new --out."
    )
