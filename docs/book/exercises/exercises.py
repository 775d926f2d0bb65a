"""The exercises of the book: write the functions, then run `python -m pytest docs/book/exercises`.

Tensors are PyTorch's, and their shapes are in brackets. `solutions.py` has a solution of each.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


def shifted(ids: list[int], begin: int, end: int) -> tuple[list[int], list[int]]:
    """Return what the decoder reads and what it has to predict, for the sentence `ids`."""
    raise NotImplementedError


def merged(words: list[list[str]]) -> list[list[str]]:
    """Join the most frequent pair of neighbours, wherever it occurs.

    [["a", "b", "a", "b"], ["c", "a", "b"]] -> [["ab", "ab"], ["c", "ab"]]. Within a word,
    the first pair that fits is joined first. There is no tie between pairs.
    """
    raise NotImplementedError


def positional_encoding(position: int, d_model: int) -> list[float]:
    """Return the vector of a position (section 3.5), with `math` only."""
    raise NotImplementedError


def shift_matrix(k: int, d_model: int) -> Tensor:
    """Return the matrix M [d_model, d_model] with PE(pos + k) = M PE(pos) for every pos.

    sin(a + b) = sin a cos b + cos a sin b, and cos(a + b) = cos a cos b - sin a sin b.
    """
    raise NotImplementedError


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Equation 1 without PyTorch's softmax.

    `query` [queries, d_k], `key` [keys, d_k] and `value` [keys, d_v] -> [queries, d_v].
    """
    raise NotImplementedError


def causal_mask(length: int) -> Tensor:
    """Return a boolean matrix [length, length].

    It is True where the query of the row may see the key of the column.
    """
    raise NotImplementedError


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[sentences, tokens, d_model] -> [sentences, heads, tokens, d_model / heads].

    Head 0 has the first columns.
    """
    raise NotImplementedError


def layer_norm(x: Tensor) -> Tensor:
    """Return `x` [..., d_model] with mean 0 and variance 1 in each vector.

    Divide by sqrt(variance + 1e-5). The variance is the mean of the squares: it divides by
    d_model, not by d_model - 1.
    """
    raise NotImplementedError


def parameters(N: int, d_model: int, d_ff: int, h: int, d_k: int, d_v: int, V: int) -> int:
    """Return the number of weights of a Transformer with V tokens, in the paper's letters.

    Attention has no biases, the two products of a feed-forward network have. A layer
    normalisation has 2 d_model weights. Positions have none, and the output uses the
    embeddings.
    """
    raise NotImplementedError


def layers_between(distance: int, k: int) -> int:
    """Return how many convolutions bring a token's information `distance` tokens on.

    Their width k is odd, and they have no holes.
    """
    raise NotImplementedError


def learning_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """Equation 3."""
    raise NotImplementedError


def perplexity(probabilities: list[float]) -> float:
    """Return the perplexity of a model that gave the right tokens these probabilities."""
    raise NotImplementedError


def smoothed(target: int, V: int, epsilon: float) -> list[float]:
    """Return the probabilities that label smoothing asks for, of V tokens."""
    raise NotImplementedError


def dropout(x: Tensor, rate: float) -> Tensor:
    """Return `x` with each number 0 with probability `rate`, and the others scaled up."""
    raise NotImplementedError


def length_penalty(length: int, alpha: float) -> float:
    """Return the divisor of the log-probability of an output with so many tokens."""
    raise NotImplementedError


def greedy(model: Any, source: Tensor, limit: int, begin: int, end: int) -> list[int]:
    """Return the most probable token at each place, up to `end`, at most `limit` tokens.

    `model.start(source)` returns a state, and `source` is [1, S].
    `model.step(tokens, state)` takes the last tokens [1] and returns the log-probabilities
    [1, V] of the next ones, and the next state. The first token that the decoder reads is
    `begin`. The output has no `end`.
    """
    raise NotImplementedError


def alignment(weights: Tensor) -> list[tuple[int, int]]:
    """Return (source place, target place) of the largest mean weight of each target place.

    `weights` [heads, target, source] are the cross-attention of a layer. The mean is over
    its heads.
    """
    raise NotImplementedError
