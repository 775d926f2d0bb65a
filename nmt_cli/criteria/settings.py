"""The settings of criteria, and where the criteria are. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.registry import configures, option


@configures(
    "criterion",
    "label_smoothed_cross_entropy",
    "nmt_cli.criteria.label_smoothed_cross_entropy:LabelSmoothedCrossEntropy",
)
@dataclass(frozen=True)
class LabelSmoothingConfig:
    label_smoothing: float = option(
        0.1,
        "epsilon_ls: share of the target distribution spread over the vocabulary.",
        minimum=0.0,
        maximum=0.99,
    )
