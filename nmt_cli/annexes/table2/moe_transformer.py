"""A Transformer whose feed-forward layers are mixtures of experts (Shazeer et al. 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from nmt_cli.annexes.table2.experts import Experts
from nmt_cli.annexes.table2.settings import MoETransformerConfig
from nmt_cli.models.transformer import Transformer

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


class MoETransformer(Transformer):
    """The Transformer with `Experts` in place of each `FeedForward`.

    Without nmt_cli.fast, padding has experts, too.
    """

    config: MoETransformerConfig
    independent = False

    def __init__(self, config: MoETransformerConfig, **runtime: Any) -> None:
        super().__init__(config, **runtime)
        for layer in (*self.encoder, *self.decoder):
            layer.feed_forward = Experts(
                config.d_model,
                config.d_ff,
                config,
                config.feed_forward_dropout,
                config.activation,
            )

    def stacks(self) -> list[nn.Module]:
        """See `Transformer`. PyTorch does not compile grouped products in every precision."""
        return []

    def training_flops(self, source_lengths: Lengths, target_lengths: Lengths) -> dict[str, float]:
        experts: Any = self.encoder[0].feed_forward
        # Two operations a product, in the forward pass and twice in the backward pass.
        flops_per_token = 6 * experts.products
        source_tokens = float(source_lengths.sum())
        target_tokens = float(target_lengths.sum())
        return super().training_flops(source_lengths, target_lengths) | {
            "encoder feed-forward": source_tokens * len(self.encoder) * flops_per_token,
            "decoder feed-forward": target_tokens * len(self.decoder) * flops_per_token,
        }
