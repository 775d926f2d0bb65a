"""The sampled loss, beside the exact one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from like_a_gpu import like_a_gpu
from tiny_run import metrics, run

from nmt_cli import registry
from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.annexes.later.sampled_cross_entropy import SampledCrossEntropy
from nmt_cli.annexes.later.settings import SampledCrossEntropyConfig
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.criteria.settings import LabelSmoothingConfig
from nmt_cli.data.batching import collate
from nmt_cli.interfaces import BOS, EOS, PAD
from nmt_cli.models.settings import TransformerConfig

V = 60
BATCH = collate([np.array([5, 6, 7]), np.array([10])], [np.array([8, 9]), np.array([11, 12, 8])])
TARGETS = {8, 9, 11, 12, EOS}


def model_of(output_bias: bool = True) -> Any:
    registry.discover()
    torch.manual_seed(3)
    config = TransformerConfig(
        num_layers=1, d_model=16, d_ff=24, num_heads=2, dropout=0.0, output_bias=output_bias
    )
    attention = registry.find("attention", "full").config()
    sizes = {"source_vocabulary_size": V, "target_vocabulary_size": V, "shared_vocabulary": False}
    model = registry.build(config, attention=attention, **sizes)
    if output_bias:
        torch.nn.init.normal_(model.output_bias)
    return model


def gradients(model: Any, criterion: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    model.zero_grad()
    total = criterion(model, BATCH).total
    total.backward()
    return total, [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("output_bias", [True, False])
def test_with_all_ids_it_is_the_exact_loss(output_bias: bool) -> None:
    model = model_of(output_bias)
    exact, exact_gradients = gradients(model, LabelSmoothedCrossEntropy(LabelSmoothingConfig()))
    sampled, sampled_gradients = gradients(
        model, SampledCrossEntropy(SampledCrossEntropyConfig(sampled_ids=V))
    )
    torch.testing.assert_close(sampled, exact)
    torch.testing.assert_close(sampled_gradients, exact_gradients, rtol=1e-4, atol=1e-5)


def test_the_sum_of_exponentials_is_right_on_average() -> None:
    model = model_of()
    batch = collate([np.array([5, 6, 7])], [np.array([], dtype=np.int64)])  # EOS is the only target
    with torch.no_grad():
        logits = model(batch.source, batch.target_in)[0, 0].double()
        criterion = SampledCrossEntropy(
            SampledCrossEntropyConfig(sampled_ids=9, label_smoothing=0.0)
        )
        sums = []
        for _ in range(4000):
            nll = criterion(model, batch).nll.double()
            sums.append((nll + logits[int(batch.target_out[0, 0])]).exp())
    sums = torch.stack(sums)
    error = sums.std() / len(sums) ** 0.5
    assert error < 0.02 * sums.mean()
    assert abs(sums.mean() - logits.exp().sum()) < 4 * error


def test_other_ids_get_no_gradient() -> None:
    model = model_of()
    criterion = SampledCrossEntropy(SampledCrossEntropyConfig(sampled_ids=7))
    changed = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        gradients(model, criterion)
        changed.append(set(model.output_weight.grad.abs().sum(1).nonzero().squeeze(1).tolist()))
        assert changed[-1] >= TARGETS
        # The decoder has read BOS, and its embeddings are the same weight.
        assert len(changed[-1] - TARGETS - {PAD, BOS}) in (6, 7)
    assert changed[0] != changed[1]


def test_validation_is_exact() -> None:
    model = model_of().eval()
    sampled = SampledCrossEntropy(SampledCrossEntropyConfig(sampled_ids=1))(model, BATCH)
    assert sampled == LabelSmoothedCrossEntropy(LabelSmoothingConfig())(model, BATCH)


def test_it_trains_and_resumes_bit_for_bit(tiny_data: Path, tmp_path: Path) -> None:
    settings = {
        "criterion": "sampled_cross_entropy",
        "sampled_ids": 5,
        "dropout": 0.1,
        "max_steps": 6,
    }
    run(tiny_data, tmp_path / "whole", **settings)
    run(tiny_data, tmp_path / "parts", **settings | {"max_steps": 4})
    run(tiny_data, tmp_path / "parts", **settings)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_gpu_trains_the_same(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU. With all ids, so that the order of the draws does not matter."""
    settings = {
        "criterion": "sampled_cross_entropy",
        "sampled_ids": 10_000,
        "precision": "float32",
        "compile": False,
        "dropout": 0.0,
        "max_steps": 1,
    }
    run(tiny_data, tmp_path / "plain", **settings)
    like_a_gpu(monkeypatch)
    run(tiny_data, tmp_path / "gpu", **settings)
    (plain,), (gpu,) = (metrics(tmp_path / name) for name in ("plain", "gpu"))
    for name in ("loss", "nll", "gradient_norm"):
        assert gpu[name] == pytest.approx(plain[name], rel=1e-4)
