"""The objects of a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from nmt_cli.data.batching import BatchPlan
from nmt_cli.data.corpus import Corpus, Indices
from nmt_cli.device import Load, Plain
from nmt_cli.distributed import World
from nmt_cli.interfaces import Criterion, Schedule
from nmt_cli.task import Task
from nmt_cli.training.costs import CostMeter
from nmt_cli.training.length import Length
from nmt_cli.training.origin import Origin
from nmt_cli.training.settings import TrainingConfig


@dataclass(frozen=True)
class Setup:
    settings: TrainingConfig
    world: World
    fast: Plain  # what computes on the device
    model: Any
    origin: Origin | None  # where its weights are from, if a checkpoint has them
    criterion: Criterion
    precision: str  # of matrix products: float32, bfloat16 or float16
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler  # of the loss in float16, else without an effect
    schedule: Schedule
    task: Task
    corpus: Corpus
    valid: Corpus | None  # the validation set
    plan: BatchPlan
    packed: bool  # a micro-batch mixes lengths, which fill bins; the updates do not depend on it
    load: Load  # sentences as a batch
    micro_batches: int  # of an update; the ranks share them
    costs: CostMeter
    length: Length
    flops: Callable[[Indices, Indices], Mapping[str, float]] | None = None  # of source and target lengths, by part
