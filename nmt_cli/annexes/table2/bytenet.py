"""ByteNet: two stacks of dilated convolutions, without attention or recurrence.

Kalchbrenner, Espeholt, Simonyan, van den Oord, Graves and Kavukcuoglu, "Neural Machine Translation
in Linear Time", 2016. The decoder stands on the encoder's output, column by column (section 3.1),
and goes on past its end (section 3.2, dynamic unfolding). Both are residual blocks around dilated
convolutions (sections 3.4 to 3.6, figure 3).

What the paper leaves open, or where this departs from it:

- The columns of the encoder are added to the target embeddings, and zeros after the last column.
- Sentences are not padded to multiples of 50. A sentence of |s| tokens is padded to |t^| = a |s| +
  b, whatever its batch.
- The last hidden layer is as wide as the embeddings and has layer normalisation before its ReLU.
  The matrix of the softmax layer has no bias.
- Layer normalisation stands before every ReLU. Blocks of multiplicative units (figure 3, right) are
  left out.
- Embeddings begin with variance 1 once they are scaled by sqrt(2d), as in a Transformer.
  Convolutions begin with variance 1 / (k d), convolutions of width 1 and the last layer as
  PyTorch's linear layers.
- The paper has no dropout in translation, and dropout before the softmax layer in language
  modelling. Here dropout is before the softmax layer, on the embeddings and on each block's output.
- No set of blocks needs to be complete.

Letters: B sentences, S source length, T target length, C columns of the encoder, A sentences of a
search, N hypotheses, d inner width of a block, d_model = 2d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.annexes.table2.convolution import CausalConvolution, Convolution
from nmt_cli.annexes.table2.settings import ByteNetConfig
from nmt_cli.interfaces import PAD
from nmt_cli.layers.dropout import Dropout
from nmt_cli.model import TensorState
from nmt_cli.models.encoder_decoder import Decoded, EncoderDecoder

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


class Block(nn.Module):
    """A residual block (figure 3, left), of width 2d outside and d inside.

    Args:
        convolution: masked in the decoder (section 3.4).
        dilation: of the convolution.
    """

    def __init__(
        self, config: ByteNetConfig, convolution: type[Convolution], dilation: int
    ) -> None:
        super().__init__()
        d = config.d_model // 2
        self.outer_norm = nn.LayerNorm(2 * d)
        self.narrow = nn.Linear(2 * d, d)
        self.inner_norm = nn.LayerNorm(d)
        self.convolution: Any = convolution(d, d, config.kernel, dilation)
        self.convolved_norm = nn.LayerNorm(d)
        self.widen = nn.Linear(d, 2 * d)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """[B, T, 2d] -> [B, T, 2d]. Other positions see zeros where `real` [B, T, 1] is False."""
        return x + self._widened(self.convolution(self._narrowed(x) * real))

    def resume(self, x: Tensor, window: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the next window for the next positions `x` [N, T, 2d]."""
        convolved, window = self.convolution.resume(self._narrowed(x), window)
        return x + self._widened(convolved), window

    def _narrowed(self, x: Tensor) -> Tensor:
        """[B, T, 2d] -> [B, T, d], before the convolution."""
        x = self.narrow(self.outer_norm(x).relu())
        return self.inner_norm(x).relu()

    def _widened(self, convolved: Tensor) -> Tensor:
        """[B, T, d] -> [B, T, 2d], after the convolution."""
        x = self.convolved_norm(convolved).relu()
        return self.dropout(self.widen(x))


class ByteNet(EncoderDecoder):
    """Encoder and decoder (section 3)."""

    def __init__(self, config: ByteNetConfig, **vocabularies: Any) -> None:
        super().__init__(config.d_model, config.tie_embeddings, **vocabularies)
        self.config = config
        dilations = config.dilations()
        self.encoder: Any = nn.ModuleList(Block(config, Convolution, r) for r in dilations)
        self.decoder: Any = nn.ModuleList(Block(config, CausalConvolution, r) for r in dilations)
        self.dropout = Dropout(config.dropout)
        self.last = nn.Sequential(
            nn.Linear(config.d_model, config.d_model),
            nn.LayerNorm(config.d_model),
            nn.ReLU(),
            self.dropout,
        )
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=config.d_model**-0.5)

    def parts(self) -> dict[str, list[Any]]:
        return {**super().parts(), "encoder": [self.encoder], "decoder": [self.decoder, self.last]}

    def start(self, source: Tensor) -> TensorState:
        """See `EncoderDecoder`. The state: the columns, and each block's window."""
        S = source.size(1)
        C = int(self.config.columns(S))
        lengths = (source != PAD).sum(1, keepdim=True)  # [B, 1]
        limits = self.config.columns(lengths.double())  # in double precision, rounded as C is
        positions = torch.arange(C, device=source.device)
        real = (positions < limits)[:, :, None]  # [B, C, 1]
        x = self._embed(self.source_embedding, F.pad(source, (0, C - S), value=PAD))
        for block in self.encoder:
            x = block(x, real)
        columns = x * real  # [B, C, d_model]
        windows = [block.convolution.zeros(columns) for block in self.decoder]
        return TensorState((columns,), tuple(windows))

    def decode(self, target_in: Tensor, state: TensorState) -> Decoded:
        (columns,) = state.source
        N, T = target_in.shape
        columns = columns[:, state.length : state.length + T]
        missing = T - columns.size(1)  # positions after the last column
        columns = F.pad(columns, (0, 0, 0, missing))  # [A, T, d_model]
        columns = columns.repeat_interleave(N // len(columns), dim=0)  # [N, T, d_model]
        x = self._embed(self.target_embedding, target_in) + columns
        windows = []
        for block, window in zip(self.decoder, state.target, strict=True):
            x, window = block.resume(x, window)
            windows.append(window)
        return Decoded(self.last(x), [], windows)

    def _embed(self, embedding: nn.Module, tokens: Tensor) -> Tensor:
        return self.dropout(embedding(tokens) * self.config.d_model**0.5)

    def training_flops(self, source_lengths: Lengths, target_lengths: Lengths) -> dict[str, float]:
        """See `Model`. The columns of a sentence count, and the padding of its batch does not."""
        return super().training_flops(self.config.columns(source_lengths), target_lengths)
