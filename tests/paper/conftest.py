"""Small Transformers for the paper's facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt_cli import registry
from nmt_cli.layers.settings import FullAttentionConfig
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.models.transformer import Transformer

VOCABULARY = 40


@pytest.fixture
def transformer() -> Callable[..., Transformer]:
    """Makes a small encoder-decoder with the given fields.

    All weights, also norms and biases, are random.
    """
    registry.discover()

    def make(shared_vocabulary: bool = True, noise: float = 0.05, **fields: Any) -> Transformer:
        torch.manual_seed(0)
        small = {"num_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 4, "dropout": 0.0}
        model = Transformer(
            TransformerConfig(**{**small, **fields}),
            attention=FullAttentionConfig(),
            source_vocabulary_size=VOCABULARY,
            target_vocabulary_size=VOCABULARY,
            shared_vocabulary=shared_vocabulary,
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(noise * torch.randn_like(parameter))
        return model

    return make
