"""Adam with the constants of section 5.3."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nmt_cli.errors import UsageError
from nmt_cli.registry import option, register

if TYPE_CHECKING:  # `nmt train --help` must not import torch
    import torch
    from torch import nn


@dataclass(frozen=True)
class AdamConfig:
    beta1: float = option(0.9, "beta_1 of Adam.", minimum=0.0)
    beta2: float = option(0.98, "beta_2 of Adam.", minimum=0.0)
    epsilon: float = option(1e-9, "epsilon of Adam.", minimum=0.0)

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            if getattr(self, name) >= 1:
                raise UsageError(f"--{name} must be below 1, not {getattr(self, name)!r}")


@register("optimizer", "adam", AdamConfig)
def adam(config: AdamConfig, *, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return PyTorch's fused Adam. The trainer sets the learning rate before every step."""
    from torch.optim import Adam

    betas = (config.beta1, config.beta2)
    return uncompiled(Adam)(parameters, lr=0.0, betas=betas, eps=config.epsilon, fused=True)


def uncompiled(optimizer: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """Return the class without the decorators that hide its methods from torch's compiler."""
    from torch import no_grad

    # They import the compiler: 75 MB, and more than a second in torch 2.13.
    names = ("step", "add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods = {name: inspect.unwrap(getattr(optimizer, name)) for name in names}
    methods["step"] = no_grad()(methods["step"])
    return type(optimizer.__name__, (optimizer,), methods)
