"""Training as on a GPU, in fake tensors: no graph break, no recompilation, no wait of the host.

`test_gpu_branch.py` runs this file in a process of its own.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from benchmarks.fake_gpu import SUM, Recorded, Training, fake_gpu
from nmt_cli.presets import PRESETS
from nmt_cli.registry import discover

NARROW = {"num_layers": 1, "d_model": 64, "d_ff": 128}
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "transformer_big": {"clip_norm": 1.0},
    "table3_A_h1": {"d_model": 512},
    "table3_B_dk32": {"query_key_norm": True, "activation": "squared_relu"},
    "table3_E": {
        "norm": "pre",
        "gated_feed_forward": True,
        "attention_biases": True,
        "output_bias": True,
    },
    "parsing_wsj": {},
    **{name: {"attention": name} for name in ("relative", "alibi", "rotary", "restricted")},
}
OTHERS: dict[str, dict[str, Any]] = {
    "moe_transformer": {**NARROW, "experts": 4},
    "moe": {"experts": 4, "d_model": 64},
    "convs2s": {},
    "bytenet": {"num_layers": 2},
    "gnmt": {"num_layers": 2},
    "deep_att": {"num_layers": 2},
}


def compiled(folder: Path, monkeypatch: pytest.MonkeyPatch, **flags: Any) -> list[int]:
    """Make three updates, in which the host must not wait after the first.

    Return the graphs made after each.
    """
    torch.compiler.reset()
    counters.clear()
    monkeypatch.setattr(
        torch, "compile", functools.partial(torch.compile, backend="eager", fullgraph=True)
    )
    graphs = []
    with fake_gpu() as gpu:
        training = Training(gpu, folder / "data", 100, 300, **{**flags, "batch_tokens": 1500})
        for number in range(3):
            recorded = training.update()
            assert not number or recorded.waits == []
            assert recorded.launches
            graphs.append(counters["stats"]["unique_graphs"])
    return graphs


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    discover()
    # Not the size of a layer.
    model = {"num_heads", "d_k", "d_v", "positions", "dropout", "attention_dropout"}
    differs = PRESETS[name].differs if name in PRESETS else {}
    flags = {
        **NARROW,
        **{key: value for key, value in differs.items() if key in model},
        **TRANSFORMERS[name],
    }
    _, second, third = compiled(tmp_path, monkeypatch, **flags)
    assert 2 <= second == third


MIXTURE = pytest.param(
    "moe",
    marks=pytest.mark.xfail(raises=DynamicOutputShapeException, reason="it looks for padding"),
)


@pytest.mark.parametrize("name", [name if name != "moe" else MIXTURE for name in OTHERS])
def test_other_models(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, second, third = compiled(tmp_path, monkeypatch, model=name, micro_batches=1, **OTHERS[name])
    assert second == third


def test_the_decoders_gradients_are_summed_over_ranks_behind_the_backward_pass(
    tmp_path: Path,
) -> None:
    discover()
    with fake_gpu() as gpu:
        training = Training(
            gpu, tmp_path / "data", 100, 300, ranks=2, **NARROW, batch_tokens=1500, compile=False
        )
        launches = [training.update() for _ in range(3)][-1].launches
    sums = [place for place, launch in enumerate(launches) if launch.name == SUM]
    products = [place for place, launch in enumerate(launches) if launch.flops]
    assert products[0] < sums[0] < products[-1] < sums[1] == sums[2] - 1
    trained = sum(parameter.numel() for parameter in training.run.trainer.parameters)
    assert sum(launches[place].moved for place in sums) == 4 * trained
    assert training.run.trainer.gradients.replayed


def test_a_wait_is_seen(tmp_path: Path) -> None:
    """And an operation that needs the contents of a tensor of the GPU is an error."""
    with fake_gpu() as gpu, gpu:
        recorded = gpu.recorded = Recorded()
        tensor = torch.ones(3, device="cuda")
        tensor.to("cpu")
        assert recorded.waits == ["_to_copy.default"]
        with pytest.raises(DataDependentOutputException):
            tensor.sum().item()
