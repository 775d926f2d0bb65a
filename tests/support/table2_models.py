"""Small models of Table 2."""

from __future__ import annotations

from typing import Any

import torch

from nmt_cli import registry


def built(
    name: str,
    *,
    vocabulary: int = 20,
    shared: bool = True,
    attention: str = "full",
    device: str = "cpu",
    **fields: Any,
) -> Any:
    """The registered model `name`, with the weights that seed 0 gives it."""
    registry.discover()
    torch.manual_seed(0)
    with torch.device(device):
        return registry.build(
            registry.find("model", name).config(**fields),
            attention=registry.find("attention", attention).config(),
            source_vocabulary_size=vocabulary,
            target_vocabulary_size=vocabulary,
            shared_vocabulary=shared,
        )
