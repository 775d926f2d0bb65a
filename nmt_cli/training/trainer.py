"""An update of the weights (section 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from nmt_cli.device import Plain
from nmt_cli.distributed import World
from nmt_cli.interfaces import Schedule
from nmt_cli.training.gradients import Gradients, Objective, trained
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.training.updates import MicroBatch, Updates


class Trainer:
    """Updates the weights of a model.

    An update is cut into micro-batches, which the ranks share. The loss is summed over all its
    target tokens and divided once, by their number. So the result depends on the number of ranks
    only by rounding.
    """

    def __init__(
        self,
        settings: TrainingConfig,
        world: World,
        fast: Plain,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        updates: Updates,
    ) -> None:
        self.config = settings
        self.world = world
        self.fast = fast
        self.objective = objective
        self.model = objective.model
        self.parameters = trained(objective.model)
        self.optimizer = optimizer
        self.schedule = schedule
        self.updates = updates
        # In float16, small gradients would underflow: the loss is scaled. Else this does nothing.
        self.scaler = torch.amp.GradScaler(
            world.device.type, enabled=objective.precision == "float16"
        )
        plain = Gradients(objective, optimizer, self.scaler, world, flat=world.size > 1)
        # Gradient checkpointing reads the state of dropout on the host, which no graph can record.
        replay = updates.packed and settings.cuda_graphs and not settings.gradient_checkpointing
        self.gradients: Gradients = fast.gradients(plain, replay)
        self.change_weights = fast.change(self.change, optimizer, self.gradients)

    def update(self, share: Sequence[MicroBatch], step: int) -> Callable[[], list[float]]:
        """Make an update from this rank's share.

        Returns:
            A function that waits for the sums of `accumulate` over all ranks, and returns them.
        """
        self.set_learning_rate(step)  # section 5.3: equation 3
        sums = self.accumulate(share, step)  # section 5.4: dropout, label smoothing
        read_sums = self.world.start_sum(sums)
        self.change_weights(sums)  # section 5.3: Adam
        self.scaler.update()
        return read_sums

    def set_learning_rate(self, step: int) -> None:
        rate = self.schedule(step)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):  # in place: CUDA graphs read it at its address
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def accumulate(self, share: Sequence[MicroBatch], step: int) -> Tensor:
        """Compute the gradient of an update, over all ranks, from this rank's share.

        Dropout's generator is seeded by (seed, step, micro-batch), so that a resumed run draws the
        same masks.

        Returns:
            Loss and nll, summed over this rank's target tokens, EOS included, and the square of the
            norm of the gradient per target token: [3] in float64, to be summed over the ranks.
        """
        self.gradients.clear()
        losses = torch.zeros(2, dtype=torch.float64, device=self.world.device)
        for micro_batch in share:
            torch.manual_seed(dropout_seed(self.config.seed, step, micro_batch.number))
            is_last = micro_batch is share[-1]
            sums = self.gradients.add(micro_batch.batch, micro_batch.weight, is_last)
            if micro_batch.weight > 0:  # else another rank counts it
                losses += sums
        gradients = self.gradients.finish()
        norm = losses.new_zeros(())
        if gradients:
            norm = torch.nn.utils.get_total_norm(gradients).to(losses)
        # float64 holds the exact square of a float32.
        return torch.cat([losses, norm.square()[None]])

    def change(self, sums: Tensor) -> None:
        """Update the weights if the loss and the gradient, in `sums` over all ranks, are finite."""
        if self.config.clip_norm:  # by default not, as in the paper
            norm = sums[2].sqrt().float()
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, norm)
        step_if(sums.isfinite().all(), self.optimizer)


def dropout_seed(seed: int, step: int, micro_batch: int) -> int:
    """Return a seed of 63 bits, which depends on all three."""
    sequence = np.random.SeedSequence((seed, step, micro_batch))
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1


def step_if(finite: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Make a step of `optimizer` if `finite`, a boolean on its device.

    torch's fused optimizers read it on the device, by the attributes that `GradScaler` uses. For
    others, the host waits for it.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif finite:
        optimizer.step()
