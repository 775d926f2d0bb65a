"""The training loop (section 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from nmt_cli.training.gradients import gradients_of, trained
from nmt_cli.training.memory import choose_micro_batches, explain_out_of_memory
from nmt_cli.training.run import Run
from nmt_cli.training.signals import stop_signals
from nmt_cli.training.updates import MicroBatch, updates


class Trainer:
    """Updates the weights of a model.

    An update is cut into micro-batches, which the ranks share. Its gradient is that of the loss summed over all
    target tokens and divided once, by their number. So the result depends on the number of ranks only by rounding.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.setup, self.config, self.world = run, run.setup, run.config, run.world
        self.optimizer, self.parameters = run.setup.optimizer, trained(run.setup.model)
        self.gradients = gradients_of(run.setup)
        self.change_weights = self.setup.fast.change(self.change, self.optimizer, self.gradients)

    def fit(self) -> None:
        """Train from the run's state to its end.

        Raises:
            Interrupted: a signal stopped the run; it is saved.
            TrainingError: too many updates were not finite, memory ran out, or a rank was lost.
        """
        run = self.run
        self.setup.model.train()
        count = self.setup.micro_batches if run.finished else choose_micro_batches(run, self.gradients)
        place = run.state.epoch, run.state.position
        with (
            updates(self.setup, count, *place) as following,
            stop_signals() as signals,
            run.reporter.display(run.state, self.setup.length.steps),
        ):
            run.do_pending()
            while not run.finished:
                update = run.next(following)  # section 5.1: about 25,000 source and 25,000 target tokens
                with explain_out_of_memory([each.batch for each in update.share], count):
                    sums = self.update(update.share, run.state.step)
                run.add(update, sums)
                run.end_step(signals)  # validate, log and save; section 6.1 averages what is saved
            run.save(run.directory.place("step", run.state.step))

    def update(self, share: Sequence[MicroBatch], step: int) -> Callable[[], list[float]]:
        """Make an update from this rank's share; return a function that waits for the numbers of `Run.add`."""
        self.set_learning_rate(step)  # section 5.3: equation 3
        sums = self.accumulate(share, step)  # section 5.4: dropout, label smoothing
        read = self.world.start_sum(sums)
        self.change_weights(sums)  # section 5.3: Adam
        self.setup.scaler.update()
        for observer in self.run.observers:
            observer.updated(step)
        return read

    def set_learning_rate(self, step: int) -> None:
        rate = self.setup.schedule(step)
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate

    def accumulate(self, share: Sequence[MicroBatch], step: int) -> Tensor:
        """Compute the gradient of an update, over all ranks, from this rank's share.

        Dropout's generator is seeded by (seed, step, micro-batch), so that a resumed run draws the same masks.

        Returns:
            The numbers of `Run.add` [3], of this rank's micro-batches. They add up over the ranks, too.
        """
        self.gradients.clear()
        losses = torch.zeros(2, dtype=torch.float64, device=self.world.device)
        for each in share:
            key = np.random.SeedSequence((self.config.seed, step, each.number)).generate_state(1, np.uint64)[0]
            torch.manual_seed(int(key) >> 1)
            losses += self.gradients.add(each.batch, each.weight) * (each.weight > 0)
        counted = self.gradients.finish()
        norm = torch.nn.utils.get_total_norm(counted).to(losses) if counted else losses.new_zeros(())
        return torch.cat([losses, norm.square()[None]])  # float64 holds the exact square of a float32

    def change(self, sums: Tensor) -> None:
        """Update the weights, unless the loss or the gradient is not finite; `sums` are those of all ranks."""
        if self.config.clip_norm:  # by default not, as in the paper
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, sums[2].sqrt().float())
        step_if(sums.isfinite().all(), self.optimizer)


def step_if(finite: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Make a step of `optimizer` if `finite`, a boolean of its device, which decides if the optimizer can leave it to.

    torch's fused optimizers can; `GradScaler` asks them by the same attributes.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif finite:
        optimizer.step()
