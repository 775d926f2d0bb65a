"""Updates that are replayed, on a CPU: a stand-in for a CUDA graph runs its function again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from like_a_gpu import Fast, like_a_gpu
from tiny_run import TINY, built, run
from torch import Tensor

from nmt_cli import checkpoint, registry
from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.commands.train import TrainOptions
from nmt_cli.distributed import World
from nmt_cli.fast.cuda import replay
from nmt_cli.fast.cuda.device import Fast as OnGPU
from nmt_cli.fast.cuda.gradients import ReplayedGradients
from nmt_cli.training.start import configuration
from nmt_cli.weights import load_weights

CPU = torch.device("cpu")


@dataclass
class StandIn:
    """A graph whose replay writes the result to the capture's memory."""

    work: Callable[[], Any]
    result: Any
    replays: int = 0

    def replay(self) -> None:
        self.replays += 1
        result = self.work()
        if result is not None:
            self.result.copy_(result)

    def pool(self) -> None: ...


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    """All graphs that are captured."""
    captured: list[StandIn] = []

    def record(
        works: Sequence[Callable[[], Any]], pool: Any
    ) -> tuple[list[StandIn], list[Tensor | None]]:
        for work in works:
            work()
        graphs = [StandIn(work, work()) for work in works]
        captured.extend(graphs)
        return graphs, [graph.result for graph in graphs]

    monkeypatch.setattr(replay, "record", record)
    return captured


@pytest.fixture
def _on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bins and replays on a CPU, without a compiler."""
    like_a_gpu(monkeypatch)
    monkeypatch.setattr(Fast, "gradients", OnGPU.gradients)


def test_a_capture_changes_nothing_and_a_replay_reads_new_values(graphs: list[StandIn]) -> None:
    """Neither the sum nor the generator of dropout. Another shape is captured anew."""
    total = torch.zeros(())

    def add(values: Tensor, weight: Tensor) -> Tensor:
        total.add_(weight * (values.sum() + torch.rand(())))
        return total * 2

    add_by_graph = replay.Replay([add], torch.zeros(()), CPU)
    torch.manual_seed(7)
    first, second = torch.rand(2).tolist()
    torch.manual_seed(7)
    assert add_by_graph(torch.ones(3), torch.tensor(2.0)).item() == pytest.approx(
        2 * (6 + 2 * first)
    )
    assert add_by_graph(torch.ones(3) * 2, torch.tensor(1.0)).item() == pytest.approx(
        2 * (12 + 2 * first + second)
    )
    add_by_graph(torch.ones(4), torch.tensor(1.0))
    assert [graph.replays for graph in graphs] == [2, 1]


@pytest.mark.usefixtures("_on_gpu")
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_replayed_updates_are_those_of_the_trainer(
    precision: str, graphs: list[StandIn], tiny_data: Path, tmp_path: Path
) -> None:
    """Bit for bit with dropout, clipping, and a rate that float32 has.

    Most updates are of known shapes.
    """
    settings = {"dropout": 0.3, "clip_norm": 1.0, "precision": precision}
    settings |= {"schedule": "constant", "learning_rate": 2.0**-7, "warmup_steps": 1}
    run(tiny_data, tmp_path / "eager", cuda_graphs=False, **settings)
    assert not graphs
    run(tiny_data, tmp_path / "replayed", **settings)
    *micro_batches, change = sorted(graphs, key=lambda graph: graph.result is None)
    assert change.replays == 12
    assert sum(graph.replays for graph in micro_batches) == 24 > 2 * len(micro_batches)
    eager, replayed = (
        load_weights(checkpoint.locate(tmp_path / name)) for name in ("eager", "replayed")
    )
    assert all(torch.equal(replayed[name], weight) for name, weight in eager.items())


@pytest.mark.usefixtures("_on_gpu")
@pytest.mark.parametrize(
    "settings",
    [
        {"dropout": 0.3},
        {"precision": "float16"},
        {"freeze": ("decoder",)},
        {"freeze": ("decoder", "embeddings")},
        {"freeze": ("encoder", "embeddings")},
        {"criterion": "r_drop"},
    ],
    ids=str,
)
def test_the_sum_over_ranks_starts_before_the_encoders_gradients_are_known(
    settings: dict[str, Any],
    graphs: list[StandIn],
    tiny_data: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the gradients of the last micro-batch. They are the ones of one graph."""
    started: list[tuple[Tensor, Tensor, int]] = []

    def all_reduce(part: Tensor, async_op: bool) -> Any:
        started.append((part, part.clone(), sum(graph.replays for graph in graphs)))
        return SimpleNamespace(wait=lambda: None)

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    registry.discover()
    config = configuration(TrainOptions(), TINY | {"micro_batches": 3} | settings)
    totals = []
    for ranks in (1, 2):
        graphs.clear()
        trainer = built(config, tiny_data, ranks).trainer
        with replace(trainer.updates, world=World(0, 1, CPU)).following(3, 0, 0) as updates:
            share = next(updates).share
        trainer.model.train()
        trainer.accumulate(share, step=1)
        parameters = trainer.model.named_parameters()
        totals.append({name: parameter.grad for name, parameter in parameters})
        assert sum(graph.replays for graph in graphs) == ranks * len(share) == ranks * 3
    assert [replays for *_, replays in started] == [5, 6, 6]
    for part, when_started, _ in started:
        assert torch.equal(part, when_started / trainer.scaler.get_scale())
    for name, gradient in totals[0].items():
        torch.testing.assert_close(totals[1][name], gradient)


@pytest.mark.usefixtures("_on_gpu", "graphs")
def test_a_run_of_replays_resumes_bit_for_bit(tiny_data: Path, tmp_path: Path) -> None:
    run(tiny_data, tmp_path / "whole")
    run(tiny_data, tmp_path / "parts", max_steps=4)
    run(tiny_data, tmp_path / "parts")
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.usefixtures("_on_gpu")
def test_an_optimizer_that_is_not_fused_is_not_captured(
    graphs: list[StandIn], tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it makes a step is for the host to decide, which a capture cannot ask."""
    monkeypatch.setattr(
        torch.optim.Adam,
        "_step_supports_amp_scaling",
        property(lambda _: False, lambda *_: None),
        False,
    )
    run(tiny_data, tmp_path / "run", max_steps=2)
    assert graphs
    assert all(graph.result is not None for graph in graphs)


@pytest.mark.usefixtures("_on_gpu", "graphs")
def test_memory_is_tried_for_another_shape_beside_the_graphs(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest micro-batches are also computed without a graph, which changes no gradient."""
    monkeypatch.setattr(Fast, "tries_memory", True)
    compute, alone = ReplayedGradients.compute, []

    def recorded(self: ReplayedGradients, batch: Any, factor: Tensor) -> Tensor:
        if not isinstance(batch.num_tokens, Tensor):
            alone.append((len(self.replay.captured), factor.item()))
        return compute(self, batch, factor)

    monkeypatch.setattr(ReplayedGradients, "compute", recorded)
    run(tiny_data, tmp_path / "run", max_steps=2)
    assert len(alone) == 2
    assert all(captured > 0 and factor == 0.0 for captured, factor in alone)
