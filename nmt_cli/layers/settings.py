"""The settings of attention, and where the kernels are. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.registry import configures, option


@configures("attention", "full", "nmt_cli.layers.attention:FullAttention")
@dataclass(frozen=True)
class FullAttentionConfig:
    """Full attention has no settings."""


@configures("attention", "restricted", "nmt_cli.layers.restricted_attention:RestrictedAttention")
@dataclass(frozen=True)
class RestrictedAttentionConfig:
    """The r of section 4."""

    neighbourhood: int = option(128, "r: a query attends to r / 2 positions on each side.", minimum=2)
