"""The settings of attention, and where the kernel is. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.registry import configures


@configures("attention", "full", "nmt_cli.layers.attention:FullAttention")
@dataclass(frozen=True)
class FullAttentionConfig:
    """Full attention has no settings."""
