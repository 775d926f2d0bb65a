"""The models of Table 2: their operations, sizes and embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from table2_models import built
from torch.utils.flop_counter import FlopCounterMode

from nmt_cli.errors import UsageError
from nmt_cli.presets import PRESETS
from nmt_cli.registry import find

CONVS2S = {"d_model": 6, "convolutions": "4x3*2,5x1", "decoder_convolutions": "4x2,3x3"}
EXPERTS = {"d_model": 8, "d_ff": 10, "experts": 4, "experts_per_token": 3}


@pytest.mark.parametrize(
    ("name", "device", "fields"),
    [
        ("bytenet", "cpu", {"num_layers": 4, "d_model": 8}),
        ("convs2s", "cpu", CONVS2S),
        # There the counter sees the products of an LSTM.
        (
            "gnmt",
            "meta",
            {"num_layers": 5, "d_model": 6},
        ),
        ("moe", "cpu", {**EXPERTS, "d_hidden": 12}),  # and here if its output is projected
        ("moe_transformer", "cpu", {**EXPERTS, "num_heads": 2, "num_decoder_layers": 1}),
    ],
)
@pytest.mark.parametrize(("source", "target"), [(5, 9), (12, 4)])
def test_operations_are_those_that_torch_counts(
    name: str, device: str, fields: dict[str, Any], source: int, target: int
) -> None:
    model = built(name, device=device, **fields)
    ids = (torch.full((3, length), 7, device=device) for length in (source, target))
    with FlopCounterMode(display=False) as counter:
        model(*ids)
    parts = model.training_flops(np.full(3, source), np.full(3, target))
    assert sum(parts.values()) == 3 * counter.get_total_flops()


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("bytenet", 2_584_710),
        ("deep_att", 2_576_064),
        ("gnmt", 2_633_016),
        ("convs2s", 2_632_192),
        ("moe", 2_567_296),
    ],
)
def test_the_small_presets_are_as_large_as_the_small_transformer(name: str, count: int) -> None:
    """Which has 2,598,912 parameters. See docs/annexes/table2.md."""
    known = find("model", name).config.__dataclass_fields__
    fields = {
        field: value for field, value in PRESETS[f"{name}_small"].differs.items() if field in known
    }
    model = built(name, vocabulary=10_000, device="meta", **fields)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize(
    ("tied", "shared", "tables"), [(False, False, 3), (False, True, 3), (True, True, 1)]
)
def test_embeddings(tied: bool, shared: bool, tables: int) -> None:
    model = built("convs2s", shared=shared, tie_embeddings=tied, **CONVS2S)
    assert (
        len({id(table) for table in (model.source_embedding, model.target_embedding, model.output)})
        == tables
    )


def test_kernels_of_self_attention_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--attention restricted .* GNMT"):
        built("gnmt", attention="restricted", d_model=6)
