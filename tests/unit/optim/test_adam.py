"""Adam's bounds. Tests/paper has its updates."""

from __future__ import annotations

import pytest
import torch

from nmt_cli.config import construct
from nmt_cli.errors import UsageError
from nmt_cli.optim.adam import AdamConfig, adam


@pytest.mark.parametrize("name", ["beta1", "beta2"])
def test_a_beta_of_one_is_refused(name: str) -> None:
    """As in PyTorch."""
    with pytest.raises(UsageError, match=f"^here: --{name} "):
        construct(AdamConfig, {name: 1.0}, {name: "here: "})
    largest = construct(AdamConfig, {name: 1 - 1e-15}, {name: "here: "})
    adam(largest, parameters=[torch.nn.Parameter(torch.zeros(2))])
