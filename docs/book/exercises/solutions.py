"""One solution of each exercise."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor


def shifted(ids: list[int], begin: int, end: int) -> tuple[list[int], list[int]]:
    return [begin, *ids], [*ids, end]


def merged(words: list[list[str]]) -> list[list[str]]:
    best = Counter(pair for word in words for pair in pairwise(word)).most_common(1)[0][0]
    joined = []
    for word in words:
        tokens: list[str] = []
        start = 0
        while start < len(word):
            fits = tuple(word[start : start + 2]) == best
            tokens.append("".join(best) if fits else word[start])
            start += 2 if fits else 1
        joined.append(tokens)
    return joined


def positional_encoding(position: int, d_model: int) -> list[float]:
    vector = []
    for i in range(d_model // 2):
        angle = position / 10000 ** (2 * i / d_model)
        vector += [math.sin(angle), math.cos(angle)]
    return vector


def shift_matrix(k: int, d_model: int) -> Tensor:
    matrix = torch.zeros(d_model, d_model)
    for i in range(d_model // 2):
        angle = k / 10000 ** (2 * i / d_model)
        rotation = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor(rotation)
    return matrix


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.T / query.size(1) ** 0.5
    powers = (scores - scores.amax(1, keepdim=True)).exp()
    return powers / powers.sum(1, keepdim=True) @ value


def causal_mask(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


def split_heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def layer_norm(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def parameters(N: int, d_model: int, d_ff: int, h: int, d_k: int, d_v: int, V: int) -> int:
    attention = 2 * d_model * h * d_k + 2 * d_model * h * d_v
    network = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    return (
        V * d_model
        + N * (attention + network + 2 * norm)
        + N * (2 * attention + network + 3 * norm)
    )


def layers_between(distance: int, k: int) -> int:
    return math.ceil(distance / (k // 2))


def learning_rate(step: int, d_model: int, warmup_steps: int) -> float:
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def perplexity(probabilities: list[float]) -> float:
    return math.exp(-sum(map(math.log, probabilities)) / len(probabilities))


def smoothed(target: int, V: int, epsilon: float) -> list[float]:
    return [epsilon / V + (1 - epsilon) * (token == target) for token in range(V)]


def dropout(x: Tensor, rate: float) -> Tensor:
    return x * (torch.rand_like(x) >= rate) / (1 - rate)


def length_penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def greedy(model: Any, source: Tensor, limit: int, begin: int, end: int) -> list[int]:
    state, last, tokens = model.start(source), begin, []
    while len(tokens) < limit:
        log_probabilities, state = model.step(torch.tensor([last]), state)
        last = int(log_probabilities.argmax())
        if last == end:
            break
        tokens.append(last)
    return tokens


def alignment(weights: Tensor) -> list[tuple[int, int]]:
    return [(source, target) for target, source in enumerate(weights.mean(0).argmax(1).tolist())]
