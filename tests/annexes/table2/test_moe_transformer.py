"""A Transformer whose feed-forward layers are mixtures of experts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from table2_models import built

from nmt_cli.device import fast
from nmt_cli.errors import UsageError
from nmt_cli.fast import rows
from nmt_cli.interfaces import AddsLoss

SOURCE, TARGET = torch.tensor([[5, 6, 7, 3], [9, 3, 0, 0]]), torch.tensor([[2, 5, 6], [2, 4, 0]])


def small_model(**fields: Any) -> Any:
    small = {
        "num_layers": 2,
        "d_model": 8,
        "d_ff": 12,
        "num_heads": 2,
        "dropout": 0.0,
        "experts": 4,
    }
    model = built("moe_transformer", **{**small, **fields})
    fast(torch.device("cpu")).fit(model)
    return model


def added(model: Any, source: torch.Tensor, target_in: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(1)
    model.decoder_output(source, target_in)
    return torch.stack(
        [module.added_loss() for module in model.modules() if isinstance(module, AddsLoss)]
    )


def test_padding_and_filler_have_no_expert() -> None:
    """Each of the four layers adds the same to the loss with and without them."""
    model = small_model()
    losses = added(model, SOURCE, TARGET)
    assert losses.shape == (4,)
    wider = [torch.nn.functional.pad(ids, (0, 5)) for ids in (SOURCE, TARGET)]
    torch.testing.assert_close(added(model, *wider), losses)


def test_what_it_cannot_do_is_refused() -> None:
    assert not rows.takes_bins(small_model())
    with pytest.raises(UsageError, match=r"--dtype int8: .*float32 or bfloat16"):
        fast(torch.device("cpu")).decodable(small_model().eval(), "int8")
    with pytest.raises(UsageError, match="--gated-feed-forward"):
        small_model(gated_feed_forward=True)
    with pytest.raises(UsageError, match="--zero-sublayers"):
        small_model(zero_sublayers=True)
