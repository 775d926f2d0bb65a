"""Section 3.4: embeddings and the pre-softmax projection.

Section 3.5: their sum with the positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from nmt_cli.layers.embedding import Embedding, sinusoids


def test_embeddings_are_multiplied_by_the_root_of_d_model() -> None:
    embedding = Embedding(10, 16)
    ids = torch.tensor([[4, 9, 4]])
    torch.testing.assert_close(embedding(ids), embedding.weight[ids] * 4.0)


def test_embeddings_and_positions_are_summed(transformer: Callable[..., Any]) -> None:
    model = transformer(num_layers=1)
    seen: list[torch.Tensor] = []
    model.encoder[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model.decoder[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    source, target = torch.tensor([[5, 6, 7, 3]]), torch.tensor([[2, 8, 9]])
    model(source, target)
    for ids, entered in zip((source, target), seen, strict=True):
        expected = math.sqrt(16) * model.output_weight[ids] + sinusoids(0, ids.size(1), 16)
        torch.testing.assert_close(entered, expected)


def test_three_matrices_are_one(transformer: Callable[..., Any]) -> None:
    model = transformer()
    assert model.source_embedding.weight is model.target_embedding.weight
    assert model.output_weight is model.target_embedding.weight
    matrices = [name for name, p in model.named_parameters() if p.shape == (40, 16)]
    assert matrices == ["target_embedding.weight"]


def test_separate_vocabularies_still_tie_the_projection(transformer: Callable[..., Any]) -> None:
    model = transformer(shared_vocabulary=False)
    assert model.source_embedding.weight is not model.target_embedding.weight
    assert model.output_weight is model.target_embedding.weight
