"""A Transformer whose feed-forward layers are mixtures of experts (Shazeer et al. 2017)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from nmt_cli.annexes.table2.experts import Experts
from nmt_cli.annexes.table2.settings import MoETransformerConfig
from nmt_cli.interfaces import with_backward
from nmt_cli.layers.layout import layout_of
from nmt_cli.models.transformer import Layouts, Transformer
from nmt_cli.packing import Packing, Rows

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


class MoETransformer(Transformer):
    """The Transformer with `Experts` in place of each `FeedForward`."""

    config: MoETransformerConfig

    def __init__(self, config: MoETransformerConfig, **runtime: Any) -> None:
        super().__init__(config, **runtime)
        sizes, dropout, activation = (config.d_model, config.d_ff), config.feed_forward_dropout, config.activation
        for layer in (*self.encoder, *self.decoder):
            layer.feed_forward = Experts(*sizes, config, dropout, activation)

    def decoder_rows(
        self, source: Tensor, target_in: Tensor, sources: Rows, targets: Rows, layout: Layouts = layout_of
    ) -> Tensor:
        """See `ComputesRows`. Without filler: it needs no expert, and does not count."""
        return super().decoder_rows(source, target_in, _tokens(sources), _tokens(targets), layout)

    def takes_bins(self) -> bool:
        """See `ComputesRows`."""
        return False

    def stacks(self) -> list[nn.Module]:
        """See `ComputesRows`. Nothing: PyTorch does not compile grouped products in every precision."""
        return []

    def training_flops(self, source_lengths: Lengths, target_lengths: Lengths) -> dict[str, float]:
        experts: Any = self.encoder[0].feed_forward
        forward = {
            "encoder feed-forward": 2 * float(source_lengths.sum()) * len(self.encoder) * experts.products,
            "decoder feed-forward": 2 * float(target_lengths.sum()) * len(self.decoder) * experts.products,
        }
        return super().training_flops(source_lengths, target_lengths) | with_backward(forward)


def _tokens(packing: Rows) -> Packing:
    assert isinstance(packing, Packing)
    return replace(packing, positions=packing.positions[: len(packing.places)])
