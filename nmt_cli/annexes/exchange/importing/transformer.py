"""The Transformer with an output matrix of its own, or a source without its end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.annexes.exchange.importing.settings import ImportedTransformerConfig
from nmt_cli.interfaces import EOS
from nmt_cli.models.transformer import Transformer


class ImportedTransformer(Transformer):
    """The Transformer with the settings of `ImportedTransformerConfig`."""

    config: ImportedTransformerConfig

    def __init__(self, config: ImportedTransformerConfig, **runtime: Any) -> None:
        super().__init__(config, **runtime)
        self.separate_output: nn.Parameter | None = None
        if config.separate_output:
            output = torch.randn(self.vocabulary_size, config.d_model) * config.d_model**-0.5
            self.separate_output = nn.Parameter(output)
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = config.norm_epsilon

    @property
    def output_weight(self) -> Tensor:
        """The pre-softmax projection [V, d_model]."""
        if self.separate_output is None:
            return self.target_embedding.weight
        return self.separate_output


class WithoutSourceEnd(ImportedTransformer):
    """A Transformer whose encoder does not see the end of the source.

    A GPU trains it without bins, which have the end.
    """

    def real(self, source: Tensor) -> Tensor:
        """See `Transformer`. Of an empty line the model sees the end: attention needs a key."""
        real = super().real(source)
        real[:, 1:] &= source[:, 1:] != EOS
        return real


def imported_transformer(config: ImportedTransformerConfig, **runtime: Any) -> ImportedTransformer:
    kind = ImportedTransformer if config.source_end else WithoutSourceEnd
    return kind(config, **runtime)
