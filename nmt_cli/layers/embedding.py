"""Embeddings (section 3.4) and positional encodings (section 3.5).

Letters: V vocabulary, d_model the model's width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.interfaces import PAD


class Embedding(nn.Module):
    """Token embeddings times sqrt(d_model), by the matrix of the pre-softmax projection."""

    def __init__(self, vocabulary_size: int, d_model: int) -> None:
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)
        with torch.no_grad():
            self.weight[PAD].zero_()  # padding starts as nothing but its position

    def forward(self, tokens: Tensor) -> Tensor:
        """Ids of any shape -> [..., d_model]."""
        return F.embedding(tokens, self.weight) * self.scale


def sinusoids(start: int, length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos of the same.

    Section 3.5.

    Returns:
        [length, d_model], for positions `start` to `start + length - 1`.
    """
    position = torch.arange(start, start + length, dtype=torch.float64)
    two_i = torch.arange(0, d_model, 2, dtype=torch.float64)
    frequency = torch.exp(two_i * (-math.log(10000.0) / d_model))  # 1 / 10000^(2i/d_model)
    angle = position[:, None] * frequency  # [length, d_model / 2]
    table = torch.empty(length, d_model, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table.float()


def positional_encoding(kind: str, d_model: int, max_positions: int) -> nn.Module:
    """Return the positional encoding `kind`: sinusoidal, learned or none."""
    if kind == "learned":
        return LearnedPositions(d_model, max_positions)
    if kind == "sinusoidal":
        return SinusoidalPositions(d_model)
    return NoPositions(d_model)


class SinusoidalPositions(nn.Module):
    """Sinusoidal positional encodings (section 3.5), in a table that grows with the sentences."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.table: Tensor
        self.register_buffer("table", torch.empty(0, d_model), persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """[length, d_model] for positions `start` to `start + length - 1`."""
        table = self.table  # another thread may replace it
        end = start + length
        if end > len(table):
            # Training may use a table that grew during translation.
            with torch.inference_mode(False):
                positions = max(end, 2 * len(table), 256)
                table = sinusoids(0, positions, self.d_model).to(table)
            self.table = table
        return table[start:end]


class LearnedPositions(nn.Module):
    """Learned positional embeddings (Table 3, row E).

    Positions past the end of the table use its last row. At first the embeddings are as large as
    sinusoids. With a standard deviation of d_model^-0.5, as tokens have it, small models were worse
    by 1.6 BLEU.
    """

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))
        nn.init.normal_(self.weight, std=0.5**0.5)

    def forward(self, start: int, length: int) -> Tensor:
        """[length, d_model] for positions `start` to `start + length - 1`."""
        positions = torch.arange(start, start + length, device=self.weight.device)
        return self.weight[positions.clamp(max=len(self.weight) - 1)]


def learned_positions(*models: Any) -> int | None:
    """Return the smallest number of positions that models have learned, None without a limit."""
    sizes = []
    for model in models:
        for module in model.modules():
            if isinstance(module, LearnedPositions):
                sizes.append(len(module.weight))
    return min(sizes, default=None)


class NoPositions(nn.Module):
    """Zeros, for models whose attention has positions in it."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.zeros: Tensor
        self.register_buffer("zeros", torch.zeros(d_model), persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """[length, d_model] for any positions."""
        return self.zeros.expand(length, -1)
