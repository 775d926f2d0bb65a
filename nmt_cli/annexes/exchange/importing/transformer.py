"""The Transformer as other toolkits vary it: an output matrix of its own, and a source without its end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.annexes.exchange.importing.settings import ImportedTransformerConfig
from nmt_cli.interfaces import EOS, PAD
from nmt_cli.layers.layout import layout_of
from nmt_cli.models.transformer import Layouts, Transformer
from nmt_cli.models.transformer_inference import TransformerInference, TransformerState
from nmt_cli.packing import Packing, Rows


class ImportedTransformer(Transformer):
    """The Transformer with the settings of `ImportedTransformerConfig`."""

    config: ImportedTransformerConfig

    def __init__(self, config: ImportedTransformerConfig, **runtime: Any) -> None:
        super().__init__(config, **runtime)
        shape = self.vocabulary_size, config.d_model
        self.separate_output = (
            nn.Parameter(torch.randn(shape) * config.d_model**-0.5) if config.separate_output else None
        )
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = config.norm_epsilon

    @property
    def output_weight(self) -> Tensor:
        """The pre-softmax projection [V, d_model]."""
        return self.target_embedding.weight if self.separate_output is None else self.separate_output

    def seen(self, source: Tensor) -> Tensor:
        """Return what the encoder sees of `source` [B, S]: an end that it does not see becomes padding.

        Of an empty line it sees the end: attention needs a key.
        """
        if self.config.source_end:
            return source
        ends = source == EOS
        ends[:, 0] = False
        return source.masked_fill(ends, PAD)

    def decoder_rows(
        self, source: Tensor, target_in: Tensor, sources: Rows, targets: Rows, layout: Layouts = layout_of
    ) -> Tensor:
        """See `ComputesRows`."""
        if not self.config.source_end:
            source = self.seen(source)
            sources = Packing.of(source != PAD)
        return super().decoder_rows(source, target_in, sources, targets, layout)

    def takes_bins(self) -> bool:
        """See `ComputesRows`. Bins would need their layout without the ends."""
        return self.config.source_end and super().takes_bins()

    def decodable(self, dtype: str = "float32") -> TransformerInference:
        """See `Model`."""
        return ImportedInference(self, dtype)


class ImportedInference(TransformerInference):
    """Decoding with the source as the model sees it."""

    def start(self, source: Tensor) -> TransformerState:
        """See `TransformerInference`."""
        return super().start(self._model.seen(source))
