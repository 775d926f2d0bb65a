"""R-Drop's loss and gradient, beside a plain one that has all logits at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from like_a_gpu import like_a_gpu
from tiny_run import metrics, run
from torch import Tensor

from nmt_cli import registry
from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.annexes.later.r_drop import RDrop
from nmt_cli.annexes.later.settings import RDropConfig
from nmt_cli.commands import train
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.data.batching import collate
from nmt_cli.interfaces import PAD
from nmt_cli.models.settings import TransformerConfig

PAIRS = [([5, 6, 7], [8, 9]), ([10], [11, 12, 13, 14, 15, 16]), ([17] * 9, [18, 19, 4])]


@pytest.fixture
def model() -> Any:
    registry.discover()
    torch.manual_seed(3)
    config = TransformerConfig(
        num_layers=1, d_model=16, d_ff=24, num_heads=2, dropout=0.3, output_bias=True
    )
    attention = registry.find("attention", "full").config()
    sizes = {"source_vocabulary_size": 23, "target_vocabulary_size": 23, "shared_vocabulary": True}
    return registry.build(config, attention=attention, **sizes)


def gradients(model: Any, total: Tensor) -> list[Tensor]:
    model.zero_grad()
    total.backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("alpha", [0.0, 0.7, 5.0])
def test_it_is_the_plain_loss(model: Any, alpha: float) -> None:
    """In chunks of one row and more. PyTorch's own divergence goes in both directions."""
    batch = collate(*([np.array(pair[side]) for pair in PAIRS] for side in (0, 1)))
    torch.manual_seed(9)
    first, second = (model(batch.source, batch.target_in) for _ in range(2))
    real = batch.target_out != PAD
    both = [logits[real].log_softmax(1) for logits in (first, second)]
    entropies = [
        F.cross_entropy(p, batch.target_out[real], reduction="sum", label_smoothing=0.1)
        for p in both
    ]
    nlls = [F.nll_loss(p, batch.target_out[real], reduction="sum") for p in both]
    divergences = [F.kl_div(p, q, reduction="sum", log_target=True) for p, q in (both, both[::-1])]
    assert min(divergences) > 0.1
    expected = (sum(entropies) + alpha * sum(divergences) / 2) / 2  # half of the paper's
    expected_gradients = gradients(model, expected)
    for chunk in (4, 20, 4096):
        torch.manual_seed(9)
        criterion = RDrop(RDropConfig(r_drop_alpha=alpha))
        criterion.logit_rows = chunk
        loss = criterion(model, batch)
        torch.testing.assert_close(loss.total, expected)
        torch.testing.assert_close(loss.nll, sum(nlls) / 2)
        assert not loss.nll.requires_grad
        torch.testing.assert_close(
            gradients(model, loss.total), expected_gradients, rtol=1e-4, atol=1e-5
        )


def test_validation_is_cross_entropy(model: Any) -> None:
    batch = collate(*([np.array(pair[side]) for pair in PAIRS] for side in (0, 1)))
    model.eval()
    losses = [
        criterion(RDropConfig())(model, batch) for criterion in (RDrop, LabelSmoothedCrossEntropy)
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_bins_give_the_loss_of_padded_sentences(
    precision: str, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU. Without dropout, so that both draw the same, and the divergence is zero."""
    settings = {
        "criterion": "r_drop",
        "precision": precision,
        "compile": False,
        "dropout": 0.0,
        "max_steps": 1,
    }
    run(tiny_data, tmp_path / "padded", **settings)
    like_a_gpu(monkeypatch)
    run(tiny_data, tmp_path / "packed", **settings)
    (padded,), (packed,) = (metrics(tmp_path / name) for name in ("padded", "packed"))
    for name in ("loss", "nll", "gradient_norm"):
        assert packed[name] == pytest.approx(
            padded[name], rel=1e-4 if precision == "float32" else 2e-2
        )


def test_a_run_resumes_bit_for_bit(tiny_data: Path, tmp_path: Path) -> None:
    settings = {"criterion": "r_drop", "dropout": 0.3, "max_steps": 6}
    run(tiny_data, tmp_path / "whole", **settings)
    run(tiny_data, tmp_path / "parts", **settings | {"max_steps": 4})
    run(tiny_data, tmp_path / "parts", **settings)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.parametrize("resumed", [True, False])  # else the same command again
def test_a_run_of_version_1_0_keeps_twice_the_weight(
    resumed: bool, tiny_data: Path, tmp_path: Path
) -> None:
    settings = {"criterion": "r_drop", "dropout": 0.3, "save_every": 2, "log_every": 1}
    run(tiny_data, tmp_path / "doubled", r_drop_alpha=6.0, max_steps=4, **settings)
    run(tiny_data, tmp_path / "old", r_drop_alpha=6.0, max_steps=2, **settings)
    path = tmp_path / "old" / "config.json"
    config = json.loads(path.read_text())
    config["criterion"]["r_drop_alpha"] = 3.0
    del config["criterion"]["sum_of_passes"]
    path.write_text(json.dumps(config))
    if resumed:
        train.run(train.TrainOptions(resume=tmp_path / "old"), {"max_steps": 4})
    else:
        run(tiny_data, tmp_path / "old", r_drop_alpha=3.0, max_steps=4, **settings)
    assert json.loads(path.read_text())["criterion"]["sum_of_passes"] is False
    old, doubled = (
        [line["loss"] for line in metrics(tmp_path / name)] for name in ("old", "doubled")
    )
    assert old == doubled
