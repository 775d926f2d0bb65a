"""The loss scale of float16, without which small gradients would be zero (Micikevicius et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt_cli.training.state import RunState


class LossScale:
    """A factor of the loss, halved if the gradient is not finite, and doubled after 2,000 updates in which it is.

    Its tensors are on the device, so that the host does not wait. The host follows one update late, by the same rule.
    """

    def __init__(self, state: RunState, device: torch.device | None = None) -> None:
        self.value = torch.full((), state.loss_scale, device=device)
        self.age = torch.full((), state.loss_scale_age, dtype=torch.int32, device=device)

    def update(self, finite: Tensor) -> None:
        """Change the scale after an update, as torch's `GradScaler` does."""
        torch._amp_update_scale_(self.value, self.age, (~finite).float(), 2.0, 0.5, 2000)


def follow(state: RunState, finite: bool) -> None:
    """Record the scale after an update in `state`."""
    scale = LossScale(state)
    scale.update(torch.tensor(finite))
    state.loss_scale, state.loss_scale_age = scale.value.item(), int(scale.age.item())
