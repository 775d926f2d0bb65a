"""Batches as rows of tokens, without padding, and the Transformer on them, by the layers of the
core.

Letters: B sentences, S source length, T target length, N rows.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.device import product_dtype
from nmt_cli.fast.layout import layout_of
from nmt_cli.fast.packing import MULTIPLE, Bins, Packing, RowBatch, Rows
from nmt_cli.interfaces import PAD, Batch
from nmt_cli.layers.attention import AttentionMask, Kernel
from nmt_cli.layers.sublayer import Residual
from nmt_cli.models.transformer import Transformer


def row_batch(batch: Batch, model: Any) -> RowBatch:
    """Return the batch with its real tokens as rows."""
    if isinstance(batch, RowBatch):
        return batch
    real = model.real(batch.source) if isinstance(model, Transformer) else batch.source != PAD
    multiple = 1 if computes_rows(model) and not model.independent else MULTIPLE
    packings = Packing.of(real, multiple), Packing.of(batch.target_in != PAD, multiple)
    return RowBatch(batch.source, batch.target_in, batch.target_out, batch.num_tokens, *packings)


def outputs(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """See `Criterion.outputs`: more rows than there are targets, or the targets of bins, in which
    PAD is filler.
    """
    batch = row_batch(batch, model)
    if computes_rows(model):
        hidden = decoder_rows(model, batch.source, batch.target_in, batch.sources, batch.targets)
    else:
        assert isinstance(batch.targets, Packing)
        hidden = batch.targets.pack(model.decoder_output(batch.source, batch.target_in))
    targets = batch.target_out.flatten()
    return hidden, targets if isinstance(batch.targets, Bins) else targets[batch.targets.places]


def decoder_output(
    self: Transformer, source: Tensor, target_in: Tensor, masks: Any = AttentionMask
) -> Tensor:
    """See `Transformer`."""
    if masks is not AttentionMask or not computes_rows(self):
        return Transformer.decoder_output(self, source, target_in, masks)
    batch = row_batch(Batch(source, target_in, target_in, 0), self)
    assert isinstance(batch.targets, Packing)
    return batch.targets.unpack(decoder_rows(self, source, target_in, batch.sources, batch.targets))


def decoder_rows(
    model: Transformer, source: Tensor, target_in: Tensor, sources: Rows, targets: Rows
) -> Tensor:
    """The hidden states [N, d_model] of the rows of `targets`; its filler means nothing."""
    memory = encode(model, source, sources)
    own, across = layout_of(targets, targets, causal=True), layout_of(targets, sources)
    x = embedded(model, model.target_embedding, model.target_positions, target_in, targets)
    return model.decoder_norm(model.decoder(x, memory, own, across))


def encode(model: Transformer, source: Tensor, sources: Rows) -> Tensor:
    """The encoder output [N, d_model] of the rows of `sources`."""
    x = embedded(model, model.source_embedding, model.source_positions, source, sources)
    return model.encoder_norm(model.encoder(x, layout_of(sources, sources)))


def embedded(
    model: Transformer, embedding: nn.Module, positions: nn.Module, tokens: Tensor, rows: Rows
) -> Tensor:
    """As `Transformer.embed`: [N, d_model]."""
    places = F.embedding(rows.positions, positions(0, tokens.size(1)))
    return lowered(model.dropout(embedding(rows.ids(tokens)) + places))


def residual(self: Residual, x: Tensor, sublayer: Any) -> Tensor:
    """See `Residual`."""
    y = Residual.forward(self, x, sublayer)
    return y if self.pre_norm else lowered(y)


def lowered(x: Tensor) -> Tensor:
    """Return hidden states in the type of products: they are short, and each product need not cast
    them.
    """
    return x.to(product_dtype(x))


METHODS = {Transformer.decoder_output: decoder_output, Residual.forward: residual}
"""What is exchanged on every device."""


def computes_rows(model: Any) -> bool:
    """Return whether the model computes what the core's Transformer does: its class has been
    exchanged.
    """
    kind = type(model)
    if getattr(kind, "decoder_output", None) is not decoder_output:
        return False
    return kind.encode is Transformer.encode and kind.embed is Transformer.embed


def takes_bins(model: Any) -> bool:
    """Return whether the rows may be those of `Bins`."""
    if (
        not computes_rows(model)
        or not model.independent
        or type(model).real is not Transformer.real
    ):
        return False
    return all(
        module.window is not None for module in model.modules() if isinstance(module, Kernel)
    )
