"""The settings of an imported Transformer. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.models.settings import TransformerConfig
from nmt_cli.registry import configures, option


@configures(
    "model",
    "imported_transformer",
    "nmt_cli.annexes.exchange.importing.transformer:imported_transformer",
)
@dataclass(frozen=True)
class ImportedTransformerConfig(TransformerConfig):
    """A Transformer's settings, and what other toolkits do differently."""

    separate_output: bool = option(
        False, "A pre-softmax matrix of its own (paper: the target embedding)."
    )
    norm_epsilon: float = option(
        1e-5, "Number added to variances in layer normalisation.", minimum=0.0
    )
    source_end: bool = option(True, "The encoder sees the end of the source.")
