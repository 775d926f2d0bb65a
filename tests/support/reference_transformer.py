"""A Transformer written once more, for one sentence, over weights by other programs' names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

FAIRSEQ = {
    "layers": ("encoder.layers", "decoder.layers"),
    "norms": (
        ("self_attn_layer_norm", "final_layer_norm"),
        ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
    ),
    "attentions": ("self_attn", "encoder_attn"),
    "projections": ("q_proj", "k_proj", "v_proj", "out_proj"),
    "feed_forward": ("fc1", "fc2"),
}
OPENNMT = {
    "layers": ("encoder.transformer", "decoder.transformer_layers"),
    "norms": (
        ("layer_norm", "feed_forward.layer_norm"),
        ("layer_norm_1", "layer_norm_2", "feed_forward.layer_norm"),
    ),
    "attentions": ("self_attn", "context_attn"),
    "projections": ("linear_query", "linear_keys", "linear_values", "final_linear"),
    "feed_forward": ("feed_forward.w_1", "feed_forward.w_2"),
}


@dataclass
class Reference:
    """A model by its weights. `names` is one of the tables above."""

    weights: Mapping[str, Tensor]
    names: Mapping[str, Any]
    heads: int
    pre_norm: bool
    epsilon: float = 1e-5
    activation: Callable[[Tensor], Tensor] = torch.relu

    def stack(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """The encoder, or the decoder over `memory`: [T, d_model] -> [T, d_model]."""
        side = int(memory is not None)
        prefix, norms = self.names["layers"][side], self.names["norms"][side]
        self_attention, across = self.names["attentions"]
        count = 1 + max(
            int(name.removeprefix(f"{prefix}.").split(".")[0])
            for name in self.weights
            if prefix in name
        )
        for layer in (f"{prefix}.{number}" for number in range(count)):
            steps: list[Callable[[Tensor], Tensor]] = [
                lambda y, layer=layer: self.attention(
                    y, y, f"{layer}.{self_attention}", causal=bool(side)
                ),  # type: ignore[misc]
                lambda y, layer=layer: self.attention(y, memory, f"{layer}.{across}"),  # type: ignore[misc,arg-type]
                lambda y, layer=layer: self.feed_forward(y, layer),  # type: ignore[misc]
            ]
            for norm, step in zip(norms, steps if side else [steps[0], steps[2]], strict=True):
                name = f"{layer}.{norm}"
                x = x + step(self.norm(x, name)) if self.pre_norm else self.norm(x + step(x), name)
        return (
            self.norm(x, f"{'decoder' if side else 'encoder'}.layer_norm") if self.pre_norm else x
        )

    def norm(self, x: Tensor, name: str) -> Tensor:
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return (x - mean) / (variance + self.epsilon).sqrt() * self.weights[
            f"{name}.weight"
        ] + self.weights[f"{name}.bias"]

    def linear(self, x: Tensor, name: str) -> Tensor:
        product = x @ self.weights[f"{name}.weight"].T
        return product + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else product

    def feed_forward(self, x: Tensor, layer: str) -> Tensor:
        inner, outer = (f"{layer}.{name}" for name in self.names["feed_forward"])
        return self.linear(self.activation(self.linear(x, inner)), outer)

    def attention(self, x: Tensor, memory: Tensor, name: str, causal: bool = False) -> Tensor:
        query, key, value, output = (
            f"{name}.{projection}" for projection in self.names["projections"]
        )
        parts = zip(*(projection.chunk(self.heads, 1) for projection in (
            self.linear(x, query), self.linear(memory, key), self.linear(memory, value)
        )), strict=True)  # fmt: skip
        heads = []
        for q, k, v in parts:
            scores = q @ k.T / math.sqrt(q.size(1))
            if causal:
                scores = scores.masked_fill(
                    torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf
                )
            heads.append(F.softmax(scores, -1) @ v)
        return self.linear(torch.cat(heads, 1), output)


def halves(first: int, count: int, d_model: int) -> Tensor:
    """tensor2tensor's sinusoids [count, d_model] of positions from `first` on: sines, cosines."""
    rates = torch.tensor([10000 ** (-i / (d_model // 2 - 1)) for i in range(d_model // 2)])
    angles = torch.arange(first, first + count)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], 1)
