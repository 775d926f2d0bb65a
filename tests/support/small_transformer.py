"""A Transformer small enough to look into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt_cli import registry
from nmt_cli.layers.settings import FullAttentionConfig
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.models.transformer import Transformer


@pytest.fixture(scope="session")
def build() -> Callable[..., Transformer]:
    """Makes a Transformer with these fields, and 20 words."""

    def make(attention: Any = None, **fields: Any) -> Transformer:
        registry.discover()
        torch.manual_seed(0)
        small = {"num_layers": 2, "d_model": 8, "d_ff": 12, "num_heads": 2, "dropout": 0.0}
        return Transformer(
            TransformerConfig(**{**small, **fields}),
            attention=attention or FullAttentionConfig(),
            source_vocabulary_size=20,
            target_vocabulary_size=20,
            shared_vocabulary=True,
        )

    return make
