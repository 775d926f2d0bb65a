"""Batches as rows of tokens, and the Transformer on them, by the layers of the core.

Letters: B sentences, S source length, T target length, N rows.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.device import product_dtype
from nmt_cli.fast.layout import layout_of
from nmt_cli.fast.packing import MULTIPLE, Packing, RowBatch, Rows
from nmt_cli.interfaces import PAD, Batch
from nmt_cli.layers.attention import AttentionMask, Kernel
from nmt_cli.layers.sublayer import Residual
from nmt_cli.models.transformer import Transformer


def row_batch(batch: Batch, model: Any) -> RowBatch:
    """Return the batch with its real tokens as rows."""
    if isinstance(batch, RowBatch):
        return batch
    real = batch.source != PAD
    if isinstance(model, Transformer):
        real = model.real(batch.source)
    multiple = MULTIPLE
    if computes_rows(model) and not model.independent:
        multiple = 1  # filler would change the other rows
    return RowBatch(
        batch.source,
        batch.target_in,
        batch.target_out,
        batch.num_tokens,
        sources=Packing.of(real, multiple),
        targets=Packing.of(batch.target_in != PAD, multiple),
    )


def outputs(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """See `Criterion.outputs`. There may be filler: after the targets, or as PAD in bins."""
    batch = row_batch(batch, model)
    if computes_rows(model):
        hidden = decoder_rows(model, batch.source, batch.target_in, batch.sources, batch.targets)
    else:
        assert isinstance(batch.targets, Packing)
        hidden = batch.targets.pack(model.decoder_output(batch.source, batch.target_in))
    targets = batch.target_out.flatten()
    if isinstance(batch.targets, Packing):
        targets = targets[batch.targets.places]
    return hidden, targets


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
    """The hidden states [N, d_model] of the rows of `targets`. Its filler means nothing."""
    memory = encode(model, source, sources)
    layout = layout_of(targets, targets, causal=True)
    cross_layout = layout_of(targets, sources)
    x = embedded(model, model.target_embedding, model.target_positions, target_in, targets)
    return model.decoder_norm(model.decoder(x, memory, layout, cross_layout))


def encode(model: Transformer, source: Tensor, sources: Rows) -> Tensor:
    """The encoder output [N, d_model] of the rows of `sources`."""
    x = embedded(model, model.source_embedding, model.source_positions, source, sources)
    return model.encoder_norm(model.encoder(x, layout_of(sources, sources)))


def embedded(
    model: Transformer, embedding: nn.Module, positions: nn.Module, tokens: Tensor, rows: Rows
) -> Tensor:
    """As `Transformer.embed`: [N, d_model]."""
    encodings = F.embedding(rows.positions, positions(0, tokens.size(1)))  # [N, d_model]
    return lowered(model.dropout(embedding(rows.ids(tokens)) + encodings))


def residual(self: Residual, x: Tensor, sublayer: Any) -> Tensor:
    """See `Residual`."""
    y = Residual.forward(self, x, sublayer)
    if self.pre_norm:  # a sum that goes on growing stays in its type
        return y
    return lowered(y)


def lowered(x: Tensor) -> Tensor:
    """Return hidden states in the type of products, so that no product has to cast them."""
    return x.to(product_dtype(x))


METHODS = {Transformer.decoder_output: decoder_output, Residual.forward: residual}
"""What is exchanged on every device."""


def computes_rows(model: Any) -> bool:
    """Return whether the model is the core's Transformer with its lines exchanged."""
    kind = type(model)
    if getattr(kind, "decoder_output", None) is not decoder_output:
        return False
    return kind.encode is Transformer.encode and kind.embed is Transformer.embed


def takes_bins(model: Any) -> bool:
    """Return whether the rows may be in `Bins`."""
    if not computes_rows(model) or not model.independent:
        return False
    if type(model).real is not Transformer.real:
        return False
    kernels = [module for module in model.modules() if isinstance(module, Kernel)]
    return all(kernel.window is not None for kernel in kernels)
