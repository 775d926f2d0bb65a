"""The settings of attention that encodes positions, and where the kernels are. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.registry import configures, option


@configures("attention", "alibi", "nmt_cli.positions.alibi_attention:AlibiAttention")
@dataclass(frozen=True)
class AlibiAttentionConfig:
    """Attention with linear biases has no settings."""


@configures("attention", "relative", "nmt_cli.positions.relative_attention:RelativeAttention")
@dataclass(frozen=True)
class RelativeAttentionConfig:
    """The k of section 3.2; the paper's base model has 16, its big model 8."""

    clipping_distance: int = option(16, "Maximum relative distance k. Larger distances are clipped.", minimum=0)


@configures("attention", "rotary", "nmt_cli.positions.rotary_attention:RotaryAttention")
@dataclass(frozen=True)
class RotaryAttentionConfig:
    """Rotary attention has no settings."""
