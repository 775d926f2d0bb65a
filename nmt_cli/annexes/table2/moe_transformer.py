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
    """The Transformer with `Experts` in place of each `FeedForward`. Without nmt_cli.fast, padding
    has experts, too.
    """

    config: MoETransformerConfig
    independent = False

    def __init__(self, config: MoETransformerConfig, **runtime: Any) -> None:
        super().__init__(config, **runtime)
        sizes, dropout, activation = (
            (config.d_model, config.d_ff),
            config.feed_forward_dropout,
            config.activation,
        )
        for layer in (*self.encoder, *self.decoder):
            layer.feed_forward = Experts(*sizes, config, dropout, activation)

    def stacks(self) -> list[nn.Module]:
        """See `Transformer`. Nothing: PyTorch does not compile grouped products in every precision."""
        return []

    def training_flops(self, source_lengths: Lengths, target_lengths: Lengths) -> dict[str, float]:
        experts: Any = self.encoder[0].feed_forward
        return super().training_flops(source_lengths, target_lengths) | {
            "encoder feed-forward": 6
            * float(source_lengths.sum())
            * len(self.encoder)
            * experts.products,
            "decoder feed-forward": 6
            * float(target_lengths.sum())
            * len(self.decoder)
            * experts.products,
        }
