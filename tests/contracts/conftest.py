"""Small components of every kind, and batches for them.

The contracts run over every registered component. Those of a module that is not installed are added
by name: `NMT_COMPONENTS=my_module pytest tests/contracts`. If a component's defaults are too large
for a test, add its field to `SMALL`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli import registry
from nmt_cli.data.batching import collate
from nmt_cli.interfaces import Batch

registry.discover(os.environ.get("NMT_COMPONENTS", "").split())

VOCABULARY = 30
SMALL = {
    "num_layers": 2,
    "num_decoder_layers": 2,
    "d_model": 16,
    "d_embedding": 12,
    "d_ff": 24,
    "d_hidden": 20,
    "experts": 4,
    "num_heads": 2,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "feed_forward_dropout": 0.0,
    "max_positions": 12,  # fewer than the longest sentence here
    "neighbourhood": 4,
    "clipping_distance": 3,
    "convolutions": "12x3*2,8x1",
    "samples": 2,
    # With the rate of the tests of optimizers, weights of 1 are otherwise far away.
    "matrix_rate": 5.0,
    "max_length_offset": 3,
}
PAIRS = [
    ([5, 6, 7], [8, 9]),
    ([10], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24]),
    ([25] * 14, [26, 27, 28, 29]),
]
"""Sentences shorter and longer than every neighbourhood, block and table of `SMALL`."""


def small(kind: str, name: str, **fields: Any) -> Any:
    """A small configuration of a component."""
    config = registry.find(kind, name).config
    own_fields = {field.name for field in dataclasses.fields(config)}
    return config(
        **{field: value for field, value in {**SMALL, **fields}.items() if field in own_fields}
    )


@pytest.fixture
def make_model() -> Callable[..., Any]:
    """Builds a registered model with a registered attention.

    Its weights are neither zero nor one.
    """

    def make(
        name: str = "transformer",
        attention: str = "full",
        shared_vocabulary: bool = True,
        seed: int = 0,
        **fields: Any,
    ) -> Any:
        torch.manual_seed(seed)
        model = registry.build(
            small("model", name, **fields),
            attention=small("attention", attention),
            source_vocabulary_size=VOCABULARY if shared_vocabulary else VOCABULARY + 5,
            target_vocabulary_size=VOCABULARY,
            shared_vocabulary=shared_vocabulary,
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model

    return make


@pytest.fixture
def make_config() -> Callable[..., Any]:
    """Small configurations, by kind and name."""
    return small


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """A batch of the pairs with these numbers, with additional columns of padding."""

    def make(
        numbers: Sequence[int] = (0, 1, 2), more_source: int = 0, more_target: int = 0
    ) -> Batch:
        chosen = [PAIRS[n] for n in numbers]
        sources, targets = ([np.array(pair[side]) for pair in chosen] for side in (0, 1))
        batch = collate(sources, targets)
        pad = torch.nn.functional.pad
        return dataclasses.replace(
            batch,
            source=pad(batch.source, (0, more_source)),
            target_in=pad(batch.target_in, (0, more_target)),
            target_out=pad(batch.target_out, (0, more_target)),
        )

    return make
