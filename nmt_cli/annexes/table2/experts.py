"""A sparsely gated mixture of experts (Shazeer et al. 2017, arXiv:1701.06538).

"Outrageously Large Neural Networks", sections 2 (noisy top-k gating) and 4, and appendix A (the
losses that balance the experts). Departures:

- No token is dropped, and noise is drawn in training only. So in evaluation a token's output
  depends on no other token.
- The coefficient of variation has the population's variance. The paper does not say which.

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

# The load is divided by the deviation of the noise, and its gradient by the square. At 1e-19 the
# gradient would not be finite.
LEAST_DEVIATION = 1e-6


class Experts(nn.Module):
    """Equation 1 over the k chosen experts: y = sum_i G(x)_i E_i(x), E_i(x) = max(0, x W_1) W_2.

    Args:
        d_model, d_ff: d and f.
        dropout, activation: of the hidden units. The paper has no dropout, and ReLU.
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
        self.config = config
        self.activate = ACTIVATIONS[activation]
        self.gate = nn.Linear(d_model, config.experts, bias=False)  # W_g
        self.noise = nn.Linear(d_model, config.experts, bias=False)  # W_noise
        self.inner = nn.Parameter(torch.empty(config.experts, d_ff, d_model))  # W_1^T
        self.outer = nn.Parameter(torch.empty(config.experts, d_model, d_ff))  # W_2^T
        self.dropout = Dropout(dropout)
        # The precision of the products of an input. `freeze` sets it.
        self.precision: Callable[[Tensor], AbstractContextManager[object]] = nullcontext
        self.balance: Tensor | None = None  # the loss of the last forward pass in training
        # Appendix A: all experts begin with about the same load.
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.noise.weight)
        for weight in (self.inner, self.outer):
            bound = weight.size(2) ** -0.5  # as in nn.Linear
            nn.init.uniform_(weight, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., d]. Each row is a token."""
        rows = x.flatten(0, -2)
        with self.precision(x):
            chosen, gates = self.choose(rows)
            return self._mix(rows, chosen, gates).view(x.shape)

    def freeze(self, dtype: str) -> None:
        """Decode from now on, with products in `dtype`."""
        if dtype == "int8":
            raise UsageError(
                "--dtype int8: a Transformer with experts decodes in float32 or bfloat16"
            )
        self.precision = lambda x: autocast(x.device, dtype)
        inner = self.inner.detach().to(getattr(torch, dtype))
        outer = self.outer.detach().to(getattr(torch, dtype))
        self.inner = nn.Parameter(inner, requires_grad=False)
        self.outer = nn.Parameter(outer, requires_grad=False)

    def added_loss(self) -> Tensor:
        """See `AddsLoss`."""
        balance = self.balance
        self.balance = None
        if balance is None:  # the criterion has chosen evaluation mode
            return self.inner.new_zeros(())
        return balance

    @property
    def products(self) -> int:
        """Multiply-adds of a forward pass in training for one token."""
        experts = self.config.experts_per_token * 2 * self.inner[0].numel()
        gate_and_noise = 2 * self.gate.weight.numel()
        return experts + gate_and_noise

    def choose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the chosen experts of the tokens [N, d], and their gates: [N, k], in float32."""
        k = self.config.experts_per_token
        with autocast(x.device, "float32"):
            x = x.float()
            clean = self.gate(x)  # [N, n]
            if not self.training:
                highest, chosen = clean.topk(k)
                return chosen, highest.softmax(-1)
            deviation = F.softplus(self.noise(x)).clamp(min=LEAST_DEVIATION)
            noisy = clean + torch.randn_like(clean) * deviation  # H(x), equation 4
            highest, chosen = noisy.topk(k)  # equation 5
            gates = highest.softmax(-1)  # equation 3
            importance = torch.zeros_like(noisy).scatter(1, chosen, gates).sum(0)  # equation 6
            balance = self.config.importance_loss * squared_variation(importance)  # equation 7
            if k < self.config.experts:  # otherwise the load of all experts is equal
                load = expected_load(clean, noisy, deviation, k)
                balance = balance + self.config.load_loss * squared_variation(load)  # equation 11
        self.balance = balance
        return chosen, gates

    def _mix(self, x: Tensor, chosen: Tensor, gates: Tensor) -> Tensor:
        """Equation 1. The rows of an expert are brought together, so that it computes them at once.

        Args:
            x: [N, d].
            chosen, gates: [N, k].
        """
        N, k = chosen.shape
        experts = chosen.flatten()  # [N * k]
        order = experts.argsort(stable=True)
        inverse = order.argsort()
        copies = x[:, None].expand(N, k, -1).flatten(0, 1)  # [N * k, d]
        rows = permuted(copies, order, inverse)
        numbers = torch.arange(self.config.experts, device=x.device)
        ends = torch.searchsorted(experts[order], numbers, right=True).int()
        ranks = self.config.experts // len(self.inner)
        outputs = exchanged(rows, ends, ranks, self._outputs)
        outputs = permuted(outputs, inverse, order).view(N, k, -1)
        return (outputs * gates[:, :, None]).sum(1)

    def _outputs(self, rows: Tensor, ends: Tensor) -> Tensor:
        """Return E_i(x) of the rows [M, d] of this rank's experts.

        Args:
            ends: where the rows of each expert end: [n], int32.
        """
        hidden = self.dropout(self.activate(grouped_product(rows, self.inner, ends)))
        return grouped_product(hidden, self.outer, ends)


def grouped_product(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Return each row times the weights of its group: [M, a], [n, b, a] -> [M, b].

    Args:
        ends: where the rows of each group end: [n], int32.
    """
    dtype = product_dtype(rows)
    row_bytes = [width * dtype.itemsize for width in weights.shape[1:]]
    fits = dtype.itemsize < 8 and all(size % 16 == 0 for size in row_bytes)
    # `grouped_mm` makes no host wait on a GPU. On a CPU it has the bits of the products one by one,
    # and is faster.
    if fits and (rows.is_cuda or torch.is_grad_enabled()):
        return F.grouped_mm(rows.to(dtype), weights.to(dtype).mT, offs=ends)
    # In decoding on a CPU the rows are few, and only the weights of their groups are converted.
    # With `unbind`, no gradient is None, only zero.
    groups = rows.tensor_split(ends[:-1].tolist())
    products = [rows.new_empty(0, weights.size(1), dtype=dtype)]
    for group, weight in zip(groups, weights.unbind(), strict=True):
        if len(group) > 0:
            products.append(F.linear(group, weight))
    return torch.cat(products)


def exchanged(
    rows: Tensor, ends: Tensor, ranks: int, outputs: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return `outputs(rows, ends)`, where each of `ranks` computes an equal part of the groups.

    Rows travel to the rank of their group, and outputs back. All ranks must call it. The host waits
    for the numbers of rows.
    """
    if ranks == 1:
        return outputs(rows, ends)
    rows = rows.to(product_dtype(rows))  # less to send
    sent = ends.diff(prepend=ends.new_zeros(1))  # rows of each group: [n]
    received = torch.empty_like(sent)  # from each rank, rows of each group of this rank: [n]
    dist.all_to_all_single(received, sent)
    sent = sent.view(ranks, -1)
    received = received.view(ranks, -1)
    there = sent.sum(1).tolist()
    here = received.sum(1).tolist()
    groups = torch.arange(sent.size(1), device=rows.device).repeat(ranks)
    group = groups.repeat_interleave(received.flatten(), output_size=sum(here))  # of each row
    order = group.argsort(stable=True)  # in a group by rank, so that sums are the same in each run
    inverse = order.argsort()
    arrived = permuted(exchange(rows, here, there), order, inverse)
    computed = outputs(arrived, received.sum(0).cumsum(0).int())
    return exchange(permuted(computed, inverse, order), there, here)


def squared_variation(x: Tensor) -> Tensor:
    """The square of the coefficient of variation: variance / mean^2."""
    return x.var(correction=0) / x.mean().square()


def expected_load(clean: Tensor, noisy: Tensor, deviation: Tensor, k: int) -> Tensor:
    """Estimate the number of tokens of each expert (equations 8 to 10), for k < n: [n].

    It is the sum of the probabilities that an expert would be chosen if its noise, and no other,
    were drawn again. So it has a gradient.

    Args:
        clean, noisy: x W_g and H(x): [N, n].
        deviation: of the noise, Softplus(x W_noise): [N, n].
    """
    highest = noisy.topk(k + 1).values
    kth = highest[:, k - 1 : k]
    next_lower = highest[:, k:]
    kth_of_the_others = torch.where(noisy >= kth, next_lower, kth)
    return torch.special.ndtr((clean - kth_of_the_others) / deviation).sum(0)


def permuted(rows: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    """Return `rows[order]`, where `inverse` undoes the order."""
    return moved(rows, lambda rows: rows[order], lambda rows: rows[inverse])


def exchange(rows: Tensor, here: list[int], there: list[int]) -> Tensor:
    """Send `there` rows to each rank, and return the received rows, `here` from each."""
    # Torch's own function with a gradient imports the compiler, which takes seconds.
    send = partial(_all_to_all, here=here, there=there)
    send_back = partial(_all_to_all, here=there, there=here)
    return moved(rows, send, send_back)


def _all_to_all(rows: Tensor, here: list[int], there: list[int]) -> Tensor:
    received = rows.new_empty(sum(here), rows.size(1))
    dist.all_to_all_single(received, rows, here, there)
    return received
