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

    An update is cut into micro-batches, which the ranks share. Its gradient is that of the loss
    summed over all target tokens and divided once, by their number. So the result depends on the
    number of ranks only by rounding.
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
        self.config, self.world, self.fast = settings, world, fast
        self.objective, self.model, self.parameters = (
            objective,
            objective.model,
            trained(objective.model),
        )
        self.optimizer, self.schedule, self.updates = optimizer, schedule, updates
        # Of the loss in float16, else without an effect.
        self.scaler = torch.amp.GradScaler(
            world.device.type, enabled=objective.precision == "float16"
        )
        plain = Gradients(objective, optimizer, self.scaler, world, flat=world.size > 1)
        # With gradient checkpointing, the host reads the state of dropout.
        replay = updates.packed and settings.cuda_graphs and not settings.gradient_checkpointing
        self.gradients: Gradients = fast.gradients(plain, replay)
        self.change_weights = fast.change(self.change, optimizer, self.gradients)

    def update(self, share: Sequence[MicroBatch], step: int) -> Callable[[], list[float]]:
        """Make an update from this rank's share; return a function that waits for its sums (see
        `accumulate`).
        """
        self.set_learning_rate(step)  # section 5.3: equation 3
        sums = self.accumulate(share, step)  # section 5.4: dropout, label smoothing
        read = self.world.start_sum(sums)
        self.change_weights(sums)  # section 5.3: Adam
        self.scaler.update()
        return read

    def set_learning_rate(self, step: int) -> None:
        rate = self.schedule(step)
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate

    def accumulate(self, share: Sequence[MicroBatch], step: int) -> Tensor:
        """Compute the gradient of an update, over all ranks, from this rank's share.

        Dropout's generator is seeded by (seed, step, micro-batch), so that a resumed run draws the
        same masks.

        Returns:
            Loss and nll, summed over this rank's target tokens, EOS included, and the square of the
            norm of the gradient per target token: [3]. They add up over the ranks, too.
        """
        self.gradients.clear()
        losses = torch.zeros(2, dtype=torch.float64, device=self.world.device)
        for each in share:
            key = np.random.SeedSequence((self.config.seed, step, each.number)).generate_state(
                1, np.uint64
            )[0]
            torch.manual_seed(int(key) >> 1)
            losses += self.gradients.add(each.batch, each.weight) * (each.weight > 0)
        counted = self.gradients.finish()
        norm = (
            torch.nn.utils.get_total_norm(counted).to(losses) if counted else losses.new_zeros(())
        )
        # float64 holds the exact square of a float32.
        return torch.cat([losses, norm.square()[None]])

    def change(self, sums: Tensor) -> None:
        """Update the weights, unless the loss or the gradient is not finite; `sums` are those of
        all ranks.
        """
        if self.config.clip_norm:  # by default not, as in the paper
            torch.nn.utils.clip_grads_with_norm_(
                self.parameters, self.config.clip_norm, sums[2].sqrt().float()
            )
        step_if(sums.isfinite().all(), self.optimizer)


def step_if(finite: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Make a step of `optimizer` if `finite`, a boolean of its device, which decides if the
    optimizer can leave it to.

    torch's fused optimizers can; `GradScaler` asks them by the same attributes.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif finite:
        optimizer.step()
