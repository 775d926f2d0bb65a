"""A sparsely gated mixture of experts (Shazeer et al. 2017, "Outrageously Large Neural Networks",
arXiv:1701.06538).

Sections 2 (noisy top-k gating) and 4, and appendix A (the losses that balance the experts).
Departures:

- No token is dropped, and noise is drawn in training only. So in evaluation a token's output
  depends on it alone.
- The coefficient of variation has the population's variance; the paper does not say which.

Letters: N tokens, d width, n experts, k experts of a token, f hidden units of an expert.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.annexes.table2.settings import ExpertsConfig
from nmt_cli.device import autocast, product_dtype
from nmt_cli.errors import UsageError
from nmt_cli.layers.dropout import Dropout
from nmt_cli.layers.moves import moved
from nmt_cli.layers.sublayer import ACTIVATIONS

LEAST_DEVIATION = 1e-6
"""Of the noise. The load is divided by it, and its gradient, by the square, would not be finite at
1e-19.
"""


class Experts(nn.Module):
    """Equation 1 over the k chosen experts, y = sum_i G(x)_i E_i(x), where E_i(x) = max(0, x W_1)
    W_2.

    Args:
        d_model, d_ff: d and f.
        dropout, activation: of the hidden units; the paper has none, and ReLU.
    """

    divided = ("inner", "outer")  # see `divide`

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        config: ExpertsConfig,
        dropout: float = 0.0,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.config, experts = config, config.experts
        self.activate = ACTIVATIONS[activation]
        self.gate = nn.Linear(d_model, experts, bias=False)  # W_g
        self.noise = nn.Linear(d_model, experts, bias=False)  # W_noise
        self.inner = nn.Parameter(torch.empty(experts, d_ff, d_model))
        self.outer = nn.Parameter(torch.empty(experts, d_model, d_ff))
        self.dropout = Dropout(dropout)
        # Of the types of products.
        self.context: Callable[[Tensor], AbstractContextManager[object]] = nullcontext
        self.balance: Tensor | None = None  # the loss of the last forward pass in training
        for zero in (
            self.gate,
            self.noise,
        ):  # appendix A: all experts begin with about the same load
            nn.init.zeros_(zero.weight)
        for weight in (self.inner, self.outer):
            # As nn.Linear does.
            nn.init.uniform_(weight, -(weight.size(2) ** -0.5), weight.size(2) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., d]. Each row is a token."""
        rows = x.flatten(0, -2)
        with self.context(x):
            return self._mix(rows, *self.choose(rows)).view(x.shape)

    def freeze(self, dtype: str) -> None:
        """Decode from now on, with products in `dtype`."""
        if dtype == "int8":
            raise UsageError(
                "--dtype int8: a Transformer with experts decodes in float32 or bfloat16"
            )
        self.context = lambda x: autocast(x.device, dtype)
        for name in ("inner", "outer"):
            weight = getattr(self, name).detach().to(getattr(torch, dtype))
            setattr(self, name, nn.Parameter(weight, requires_grad=False))

    def added_loss(self) -> Tensor:
        """See `AddsLoss`."""
        balance, self.balance = self.balance, None
        # None: the criterion chose evaluation mode.
        return self.inner.new_zeros(()) if balance is None else balance

    @property
    def products(self) -> int:
        """Multiply-adds of a forward pass in training for one token: its experts, gate and noise."""
        return (
            self.config.experts_per_token * 2 * self.inner[0].numel() + 2 * self.gate.weight.numel()
        )

    def choose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen experts [N, k] of the tokens [N, d], and their gates (equations 3 to 5); in
        float32.
        """
        with autocast(x.device, "float32"):
            x = x.float()
            clean = scores = self.gate(x)
            if self.training:
                deviation = F.softplus(self.noise(x)).clamp(min=LEAST_DEVIATION)
                scores = clean + torch.randn_like(clean) * deviation  # H(x), equation 4
            highest, chosen = scores.topk(self.config.experts_per_token)
            gates = highest.softmax(-1)
            if self.training:
                importance = torch.zeros_like(scores).scatter(1, chosen, gates).sum(0)  # equation 6
                # Equation 7.
                self.balance = self.config.importance_loss * squared_variation(importance)
                if (
                    self.config.experts_per_token < self.config.experts
                ):  # else each expert has each token
                    load = expected_load(clean, scores, deviation, self.config.experts_per_token)
                    # Equation 11.
                    self.balance = self.balance + self.config.load_loss * squared_variation(load)
        return chosen, gates

    def _mix(self, x: Tensor, chosen: Tensor, gates: Tensor) -> Tensor:
        """Equation 1. The rows of an expert are brought together, so that it computes them at once."""
        experts = chosen.flatten()
        order = experts.argsort(stable=True)
        inverse = order.argsort()
        rows = permuted(x[:, None].expand(*chosen.shape, -1).flatten(0, 1), order, inverse)
        numbers = torch.arange(self.config.experts, device=x.device)
        ends = torch.searchsorted(experts[order], numbers, right=True)
        outputs = exchanged(rows, ends.int(), self.config.experts // len(self.inner), self._outputs)
        return (permuted(outputs, inverse, order).view(*chosen.shape, -1) * gates[:, :, None]).sum(
            1
        )

    def _outputs(self, rows: Tensor, ends: Tensor) -> Tensor:
        """E_i(x) of the rows [M, d] of this rank's experts, in their order; `ends`: where each
        expert's rows end.
        """
        hidden = self.dropout(self.activate(grouped_product(rows, self.inner, ends)))
        return grouped_product(hidden, self.outer, ends)


def grouped_product(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """[M, a], [n, b, a] -> [M, b]: each row times the weights of its group; `ends` [n] int32: after
    each group's rows.

    `grouped_mm` makes no host wait on a GPU. On a CPU it has the bits of the products one by one,
    and is faster.
    """
    dtype = product_dtype(rows)
    fits = dtype.itemsize < 8 and all(
        width * dtype.itemsize % 16 == 0 for width in weights.shape[1:]
    )
    if fits and (rows.is_cuda or torch.is_grad_enabled()):
        return F.grouped_mm(rows.to(dtype), weights.to(dtype).mT, offs=ends)
    # Decoding on a CPU: the rows are few, and only the weights of their groups are converted.
    # No gradient is None, only zero.
    parts = zip(rows.tensor_split(ends[:-1].tolist()), weights.unbind(), strict=True)
    products = [F.linear(part, weight) for part, weight in parts if len(part)]
    return torch.cat([rows.new_empty(0, weights.size(1), dtype=dtype), *products])


def exchanged(
    rows: Tensor, ends: Tensor, ranks: int, outputs: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return what `outputs(rows, ends)` would, where each of `ranks` has an equal part of the
    groups.

    Rows travel to their group's rank, and outputs back. All ranks must call it. The host waits for
    the numbers of rows.
    """
    if ranks == 1:
        return outputs(rows, ends)
    rows = rows.to(product_dtype(rows))  # less to send
    sent = ends.diff(prepend=ends.new_zeros(1))  # [n]: the rows of each group
    # [ranks * (n / ranks)]: for each rank, its rows of each group here.
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    there, here = (counts.view(ranks, -1).sum(1).tolist() for counts in (sent, received))
    group = torch.arange(len(sent) // ranks, device=rows.device).repeat(ranks)
    group = group.repeat_interleave(received, output_size=sum(here))
    order = group.argsort(stable=True)  # in a group by rank, so that sums are the same in each run
    inverse = order.argsort()
    own_ends = received.view(ranks, -1).sum(0).cumsum(0).int()
    arrived = permuted(exchange(rows, here, there), order, inverse)
    return exchange(permuted(outputs(arrived, own_ends), inverse, order), there, here)


def squared_variation(x: Tensor) -> Tensor:
    """The square of the coefficient of variation: variance / mean^2."""
    return x.var(correction=0) / x.mean().square()


def expected_load(clean: Tensor, noisy: Tensor, deviation: Tensor, k: int) -> Tensor:
    """A smooth estimate [n] of the number of tokens of each expert (equations 8 to 10), for k < n.

    It adds up the probabilities that an expert were chosen if its noise, and no other, were drawn
    again.

    Args:
        clean, noisy: x W_g and H(x): [N, n].
        deviation: of the noise, Softplus(x W_noise): [N, n].
    """
    highest = noisy.topk(k + 1).values
    kth, next_lower = highest[:, k - 1 : k], highest[:, k:]
    kth_of_the_others = torch.where(noisy >= kth, next_lower, kth)
    return torch.special.ndtr((clean - kth_of_the_others) / deviation).sum(0)


def permuted(rows: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    return moved(rows, lambda rows: rows[order], lambda rows: rows[inverse])


def exchange(rows: Tensor, here: list[int], there: list[int]) -> Tensor:
    """Send `there` rows to each rank, and return those received, `here` from each."""
    # Torch's own function with a gradient imports the compiler, which takes seconds.
    return moved(
        rows, partial(_sent, here=here, there=there), partial(_sent, here=there, there=here)
    )


def _sent(rows: Tensor, here: list[int], there: list[int]) -> Tensor:
    received = rows.new_empty(sum(here), rows.size(1))
    dist.all_to_all_single(received, rows, here, there)
    return received
