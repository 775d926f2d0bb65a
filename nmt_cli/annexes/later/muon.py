"""Muon: momentum whose matrices are orthogonalised.

Jordan et al. 2024, kellerjordan.github.io/posts/muon. It is for the matrices of hidden layers.
AdamW trains embeddings, vectors and tensors of more dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.annexes.later.adamw import adamw
from nmt_cli.annexes.later.settings import MuonConfig
from nmt_cli.distributed import explain_lost_ranks, ranks_of
from nmt_cli.model import Model
from nmt_cli.optim.adam import uncompiled

# a, b and c of the post's polynomial. It brings small singular values near 1 fast, but not to 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def mark_embeddings(config: Any, *, model: Model, **_: Any) -> None:
    """Give the parameters of the part `embeddings` the attribute `embeds`.

    An optimizer gets parameters only, without the names of their parts.
    """
    for module in model.parts().get("embeddings", ()):
        for parameter in module.parameters():
            vars(parameter)["embeds"] = True


def muon(config: MuonConfig, *, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return a `Muon`. The trainer sets the learning rate before every step."""
    return uncompiled(Muon)(config, parameters=parameters)


class Muon(torch.optim.Optimizer):
    """Muon with the rate and decay of AdamW (Liu et al. 2025, equation 4).

    torch.optim.Muon with `match_rms_adamw` computes the same, but takes matrices only, and one
    after the other, which is slow for small ones.
    """

    def __init__(self, config: MuonConfig, *, parameters: Iterable[nn.Parameter]) -> None:
        self.config = config
        hidden = []
        others = []
        for parameter in parameters:
            if parameter.dim() == 2 and "embeds" not in vars(parameter):
                hidden.append(parameter)
            else:
                others.append(parameter)
        self.others = adamw(config, parameters=others)
        super().__init__([{"params": hidden}, *self.others.param_groups], {"lr": 0.0})

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Change the weights. There is no closure."""
        hidden = self.param_groups[0]
        # Groups and state are other objects after `load_state_dict`.
        self.others.param_groups = self.param_groups[1:]
        self.others.state = self.state
        self.others.step()
        matrices_by_shape: dict[torch.Size, list[Tensor]] = {}
        for matrix in hidden["params"]:
            if matrix.grad is not None:
                matrices_by_shape.setdefault(matrix.shape, []).append(matrix)
        rate = hidden["lr"] * self.config.matrix_rate
        for matrices in matrices_by_shape.values():
            self.change(matrices, rate)

    def change(self, matrices: list[Tensor], rate: float) -> None:
        """Make a step of matrices of one shape, with Nesterov's momentum."""
        gradients: list[Any] = [matrix.grad for matrix in matrices]
        averages = []
        for matrix in matrices:
            state = self.state[matrix]
            if "average" not in state:
                state["average"] = torch.zeros_like(matrix)
            averages.append(state["average"])
        momentum = self.config.momentum
        torch._foreach_lerp_(averages, gradients, 1 - momentum)
        # [n, rows, columns]
        ahead = torch.stack(torch._foreach_lerp(gradients, averages, momentum))
        divided = any(ranks_of(matrix) > 1 for matrix in matrices)  # ranks have different parts
        orthogonalise = orthogonalised if divided else orthogonalised_by_ranks
        steps = list(orthogonalise(ahead).float())
        # The root mean square of Adam's steps is about 0.2 times the rate.
        scale = 0.2 * max(ahead.shape[1:]) ** 0.5
        torch._foreach_mul_(matrices, 1 - rate * self.config.weight_decay)
        torch._foreach_add_(matrices, steps, alpha=-rate * scale)


def orthogonalised_by_ranks(matrices: Tensor) -> Tensor:
    """Return what `orthogonalised` does. On CPUs, each rank computes a part of the matrices.

    With small updates this is a third of the time of an update. On a GPU it is little.
    """
    if not (dist.is_initialized() and matrices.device.type == "cpu"):
        return orthogonalised(matrices)
    ranks = dist.get_world_size()
    missing = -len(matrices) % ranks
    parts = F.pad(matrices, (0, 0, 0, 0, 0, missing)).chunk(ranks)
    part = orthogonalised(parts[dist.get_rank()]).contiguous()
    steps = part.new_empty(ranks * len(part), *part.shape[1:])
    with explain_lost_ranks():
        dist.all_gather_into_tensor(steps, part)
    return steps[: len(matrices)]


def orthogonalised(matrices: Tensor) -> Tensor:
    """Return about U V^T of the singular value decompositions: [n, rows, columns].

    Five steps of Newton and Schulz: X becomes a X + (b X X^T + c (X X^T)^2) X.
    """
    is_wide = matrices.size(1) <= matrices.size(2)
    if not is_wide:  # X X^T is the smaller product
        matrices = matrices.mT
    x = matrices
    # bfloat16 suffices. A CPU without it takes 30 times as long.
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    on_gpu = x.device.type != "cpu"
    if on_gpu or (has_onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        x = x.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(5):
        square = x @ x.mT
        polynomial = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x if is_wide else x.mT
