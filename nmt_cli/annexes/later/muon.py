"""Muon: momentum whose matrices are orthogonalised (Jordan et al. 2024,
kellerjordan.github.io/posts/muon).

It is for the matrices of hidden layers. AdamW trains embeddings, vectors and tensors of more
dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.annexes.later.adamw import adamw
from nmt_cli.annexes.later.settings import MuonConfig
from nmt_cli.model import Model
from nmt_cli.optim.adam import uncompiled

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b and c of the post's polynomial, which brings small singular values near 1 fast, and none to
1 exactly.
"""


def mark_embeddings(config: Any, *, model: Model, **_: Any) -> None:
    """Give the parameters of the part `embeddings` the attribute `embeds`: an optimizer gets
    parameters only.
    """
    for module in model.parts().get("embeddings", ()):
        for parameter in module.parameters():
            vars(parameter)["embeds"] = True


def muon(config: MuonConfig, *, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return a `Muon`. The trainer sets the learning rate before every step."""
    return uncompiled(Muon)(config, parameters=parameters)


class Muon(torch.optim.Optimizer):
    """As torch.optim.Muon with `match_rms_adamw`: of the rate and decay of AdamW (Liu et al. 2025,
    equation 4).

    torch's takes no other parameters, and computes one matrix after the other, which is slow for
    small ones.
    """

    def __init__(self, config: MuonConfig, *, parameters: Iterable[nn.Parameter]) -> None:
        self.config = config
        both: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
        for each in parameters:
            both[each.dim() == 2 and "embeds" not in vars(each)].append(each)
        self.others = adamw(config, parameters=both[0])
        super().__init__([{"params": both[1]}, *self.others.param_groups], {"lr": 0.0})

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Change the weights; there is no closure."""
        hidden, *self.others.param_groups = self.param_groups
        self.others.state = self.state  # both are other objects after `load_state_dict`
        self.others.step()
        shapes: dict[torch.Size, list[Tensor]] = {}
        for each in hidden["params"]:
            if each.grad is not None:
                shapes.setdefault(each.shape, []).append(each)
        for matrices in shapes.values():
            self.change(
                matrices, [each.grad for each in matrices], hidden["lr"] * self.config.matrix_rate
            )

    def change(self, matrices: list[Tensor], gradients: list[Any], rate: float) -> None:
        """Make a step of matrices of one shape, with Nesterov's momentum."""
        averages = [
            self.state[each].setdefault("average", torch.zeros_like(each)) for each in matrices
        ]
        torch._foreach_lerp_(averages, gradients, 1 - self.config.momentum)
        ahead = torch.stack(torch._foreach_lerp(gradients, averages, self.config.momentum))
        # Adam's steps have a root mean square of about 0.2 times the rate.
        scale = 0.2 * max(ahead.shape[1:]) ** 0.5
        torch._foreach_mul_(matrices, 1 - rate * self.config.weight_decay)
        torch._foreach_add_(matrices, list(orthogonalised(ahead).float()), alpha=-rate * scale)


def orthogonalised(matrices: Tensor) -> Tensor:
    """Return U V^T of the singular value decompositions, about: [n, rows, columns] -> the same in
    bfloat16.

    Five steps of Newton and Schulz: X becomes a X + (b X X^T + c (X X^T)^2) X.
    """
    wide = matrices.size(1) <= matrices.size(2)
    x = (matrices if wide else matrices.mT).bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(5):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT
