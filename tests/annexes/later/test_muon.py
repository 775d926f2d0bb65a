"""Muon beside PyTorch's own, the singular values of its steps, and its rule for what it trains."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import TINY, run
from torch import nn

from nmt_cli import registry
from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.annexes.later.muon import muon, orthogonalised
from nmt_cli.annexes.later.settings import MuonConfig
from nmt_cli.config import resolve
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.training.start import prepared

SHAPES = [(8, 8), (24, 8), (8, 24), (8, 8), (24, 8), (3, 4, 5), (7,)]


def test_the_steps_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of torch's Muon for matrices, and of its AdamW for the others, at a rate that changes."""
    # torch's Muon computes in bfloat16 on every CPU.
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    torch.manual_seed(1)
    our_parameters = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    their_parameters = copy.deepcopy(our_parameters)
    settings = {"beta2": 0.95, "epsilon": 1e-6, "weight_decay": 0.3}
    optimizer = muon(
        MuonConfig(**settings, momentum=0.9, matrix_rate=3.0), parameters=our_parameters
    )
    matrices, others = their_parameters[:-2], their_parameters[-2:]
    expected = [
        torch.optim.Muon(
            matrices, lr=0.0, weight_decay=0.3, momentum=0.9, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others[:1], lr=0.0, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.3),
        torch.optim.AdamW(others[1:], lr=0.0, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.0),
    ]
    for step in range(5):
        for mine, other in zip(our_parameters, their_parameters, strict=True):
            mine.grad, other.grad = (
                torch.randn(mine.shape, generator=torch.manual_seed(step)) for _ in range(2)
            )
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * step
        for torch_optimizer, factor in zip(expected, (3.0, 1.0, 1.0), strict=True):
            torch_optimizer.param_groups[0]["lr"] = 0.01 * step * factor
            torch_optimizer.step()
        optimizer.step()
    for mine, other in zip(our_parameters, their_parameters, strict=True):
        torch.testing.assert_close(mine, other)


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    seed=st.integers(0, 99),
    size=st.floats(1e-4, 1e4),
)
def test_a_step_has_singular_values_near_one(
    rows: int, columns: int, seed: int, size: float
) -> None:
    """The singular vectors are the gradient's, except at the smallest values, after five steps."""
    gradient = torch.randn(1, rows, columns, generator=torch.Generator().manual_seed(seed)) * size
    u, values, v = torch.linalg.svd(gradient[0], full_matrices=False)
    diagonal = u.mT @ orthogonalised(gradient)[0].float() @ v.mT
    large = diagonal.diagonal()[values > 0.05 * values.norm()]
    assert ((large > 0.6) & (large < 1.3)).all()
    assert (diagonal - diagonal.diagonal().diag()).abs().max() < 0.1


RANK = """
import sys
import torch, torch.distributed as dist
from nmt_cli.annexes.later.muon import orthogonalised_by_ranks

folder, rank = sys.argv[1:]
dist.init_process_group("gloo", f"file://{folder}/store", rank=int(rank), world_size=2)
torch.save(orthogonalised_by_ranks(torch.load(f"{folder}/matrices")), f"{folder}/steps-{rank}")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("shape", [(3, 8, 24), (1, 24, 8)])
def test_two_ranks_compute_the_steps_of_one(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Also if they have unequal parts, or one has none."""
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    torch.save(matrices, tmp_path / "matrices")
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path), str(rank)])
        for rank in range(2)
    ]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
    first, second = (torch.load(tmp_path / f"steps-{rank}") for rank in range(2))
    assert torch.equal(first, second)
    torch.testing.assert_close(first, orthogonalised(matrices), rtol=0.02, atol=0.02)


def test_of_a_divided_matrix_each_rank_changes_its_own_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("nmt_cli.annexes.later.muon.orthogonalised_by_ranks")
    part = nn.Parameter(torch.ones(4, 4))
    vars(part)["ranks"] = 2
    part.grad = torch.eye(4)
    optimizer = muon(MuonConfig(), parameters=[part])
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    assert not torch.equal(part.detach(), torch.ones(4, 4))


@pytest.mark.parametrize("separate", [False, True])
def test_of_a_transformer_it_trains_the_matrices_of_the_layers(separate: bool) -> None:
    """Not the embeddings, of which one is the output layer, and not the tables of positions."""
    registry.discover()
    flags = {**TINY, "optimizer": "muon", "positions": "learned"}
    config = resolve(TrainingConfig, flags)
    sizes = {
        "source_vocabulary_size": 16,
        "target_vocabulary_size": 16,
        "shared_vocabulary": not separate,
    }
    model = registry.build(config["model"], attention=config["attention"], **sizes)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    prepared(model, config)
    optimizer = registry.build(config["optimizer"], parameters=list(model.parameters()))
    hidden, *others = ({names[id(p)] for p in group["params"]} for group in optimizer.param_groups)
    matrices = {name for name, parameter in model.named_parameters() if parameter.dim() == 2}
    tables = {name for name in matrices if "embedding" in name or "positions" in name}
    assert len(tables) == 3 + separate
    assert hidden == matrices - tables
    assert hidden | set().union(*others) == set(names.values())


def test_a_run_resumes_bit_for_bit(tiny_data: Path, tmp_path: Path) -> None:
    """An epoch ends in between, later updates are larger, and sub-layers begin with zero."""
    settings = {
        "optimizer": "muon",
        "batch_growth": 3,
        "query_key_norm": True,
        "zero_sublayers": True,
    }
    run(tiny_data, tmp_path / "whole", **settings)
    run(tiny_data, tmp_path / "parts", **settings, max_steps=4)
    run(tiny_data, tmp_path / "parts", **settings)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
