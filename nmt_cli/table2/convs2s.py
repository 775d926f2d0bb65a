"""ConvS2S: Gehring, Auli, Grangier, Yarats and Dauphin (2017), "Convolutional Sequence to Sequence Learning".

Section numbers and equations are those of that paper. Letters: B sentences, S source length m, T target length, f width
of the embeddings (`d_model`), C and C' channels of a layer's input and output, k width of a kernel, V vocabulary;
in a search, A sentences and N hypotheses.

As in the authors' program, which the paper leaves open: every sum of two terms is multiplied by sqrt(0.5) and not only
that of a residual block; a context c of width f is projected to the width of its layer; the gradient of the encoder
output is divided by twice the number of attentions.

Departures: there is no bias b_o before the softmax; m counts the real positions of a sentence, so that padding changes
nothing; a position past the last of the table has its embedding; the learning rate is not divided when the validation
loss stops improving, because schedules are functions of the step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.errors import UsageError
from nmt_cli.interfaces import PAD, with_backward
from nmt_cli.layers.dropout import Dropout
from nmt_cli.layers.embedding import LearnedPositions
from nmt_cli.registry import option, register
from nmt_cli.table2.convolution import CausalConvolution, Convolution
from nmt_cli.table2.encoder_decoder import EncoderDecoder, EncoderDecoderInference, FixedState
from nmt_cli.table2.weight_norm import folded, normalised

if TYPE_CHECKING:
    from nmt_cli.interfaces import Lengths


@dataclass(frozen=True)
class ConvS2SConfig:
    """Size and regularisation of ConvS2S; the defaults are the model for WMT 2014 EN-DE (section 5.1)."""

    d_model: int = option(512, "Width of the embeddings and of the decoder's output.", minimum=1)
    convolutions: str = option(
        "512x3*10,768x3*3,2048x1*2", "Encoder layers, CHANNELSxKERNEL*LAYERS,... in order.", metavar="LAYERS"
    )
    decoder_convolutions: str | None = option(
        None, "Decoder layers in the same form. [default: as the encoder]", metavar="LAYERS"
    )
    dropout: float = option(0.2, "Dropout on embeddings, layer inputs and decoder output.", minimum=0.0, maximum=0.99)
    max_positions: int = option(1024, "Rows of the position embeddings.", minimum=1)
    tie_embeddings: bool = option(False, "One matrix for embeddings and output layer.")

    def __post_init__(self) -> None:
        self.widths()

    def widths(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Channels and kernel width of each encoder layer, and of each decoder layer."""
        encoder = _parsed(self.convolutions, "--convolutions")
        if self.decoder_convolutions is None:
            return encoder, encoder
        return encoder, _parsed(self.decoder_convolutions, "--decoder-convolutions")


def _parsed(text: str, flag: str) -> list[tuple[int, int]]:
    """Return (channels, kernel) of each layer of `text`, such as 512x3*10,2048x1.

    Raises:
        UsageError: `text`, the value of `flag`, has another form.
    """
    layers: list[tuple[int, int]] = []
    for group in text.split(","):
        match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,2})(?:\*([1-9]\d{0,2}))?", group.strip())
        if not match:
            raise UsageError(
                f"{flag} takes CHANNELSxKERNEL or CHANNELSxKERNEL*LAYERS, such as 512x3*10,2048x1*2, not {text!r}"
            )
        layers += [(int(match[1]), int(match[2]))] * int(match[3] or 1)
    return layers


class Source(NamedTuple):
    """The keys and values of the source for attention."""

    keys: Tensor  # z: [A, S, f]
    values: Tensor  # z + e: [A, S, f]
    padding: Tensor  # True at padding: [A, S]


class Attention(nn.Module):
    """Multi-step attention of one decoder layer (section 3.3)."""

    def __init__(self, channels: int, d_model: int) -> None:
        super().__init__()
        self.query = normalised(nn.Linear(channels, d_model))
        self.context = normalised(nn.Linear(d_model, channels))

    def forward(self, h: Tensor, embedded: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """`h` plus its context, and the weights a [A, Q, S] of its Q positions in each sentence.

        Args:
            h: the layer's state [..., C'], Q rows for each sentence in turn.
            embedded: g, the embeddings [..., f] of the same positions.
            source: of A sentences.
        """
        d = _summed(self.query(h), embedded)  # equation 1
        scores = torch.bmm(d.view(len(source.keys), -1, d.size(-1)), source.keys.mT).float()
        weights = scores.masked_fill(source.padding[:, None], -math.inf).softmax(-1)
        context = torch.bmm(weights, source.values)  # equation 2
        m = (~source.padding).sum(1)[:, None, None]
        context = (context * m.sqrt()).view(d.shape)  # m sqrt(1 / m), section 3.4
        return _summed(self.context(context), h), weights


class Block(nn.Module):
    """A convolution whose outputs are values and gates, and a residual connection around it (section 3.2)."""

    def __init__(self, kind: type[Convolution], inputs: int, outputs: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.convolution: Any = normalised(kind(inputs, 2 * outputs, kernel), 4 * (1 - dropout))
        self.residual = nn.Identity() if inputs == outputs else normalised(nn.Linear(inputs, outputs))


class EncoderLayer(Block):
    """Convolution, gated linear unit and residual connection."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dropout: float) -> None:
        super().__init__(Convolution, inputs, outputs, kernel, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, C] -> [B, S, C'], where `x` is zero at padding."""
        return _summed(F.glu(self.convolution(self.dropout(x))), self.residual(x))


class DecoderLayer(Block):
    """The same without later positions, and with attention."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dropout: float, d_model: int) -> None:
        super().__init__(CausalConvolution, inputs, outputs, kernel, dropout)
        self.attention = Attention(outputs, d_model)

    def forward(self, x: Tensor, embedded: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """[B, T, C] -> [B, T, C'], and the weights of attention [B, T, S]."""
        h, weights = self.attention(F.glu(self.convolution(self.dropout(x))), embedded, source)
        return _summed(h, self.residual(x)), weights

    def step(self, x: Tensor, embedded: Tensor, source: Source, window: Tensor) -> tuple[Tensor, Tensor]:
        """The next input [N, C] and the window of those before it -> [N, C'], and the next window."""
        convolved, window = self.convolution.step(x, window)
        h, _ = self.attention(F.glu(convolved), embedded, source)
        return _summed(h, self.residual(x)), window


@register("model", "convs2s", ConvS2SConfig)
class ConvS2S(EncoderDecoder):
    """The convolutional encoder and decoder of section 3, with weight normalisation (section 4.2).

    A gain of 4 and the dropout's p = 1 - rate make the initial weights those of section 3.5.
    """

    def __init__(self, config: ConvS2SConfig, **runtime: Any) -> None:
        super().__init__(config.d_model, config.tie_embeddings, **runtime)
        self.config = config
        width, dropout = config.d_model, config.dropout
        self.source_positions, self.target_positions = (LearnedPositions(width, config.max_positions) for _ in range(2))
        for embedding in (self.source_embedding, self.target_embedding, self.source_positions, self.target_positions):
            nn.init.normal_(embedding.weight, std=0.1)
        if isinstance(self.output, nn.Linear):
            normalised(self.output, 1 - dropout)
        self.dropout = Dropout(dropout)
        plans = [_shapes(layers) for layers in config.widths()]
        self.encoder_in, self.decoder_in = (normalised(nn.Linear(width, plan[0][0]), 1 - dropout) for plan in plans)
        self.encoder_out, self.decoder_out = (normalised(nn.Linear(plan[-1][1], width)) for plan in plans)
        self.encoder: Sequence[EncoderLayer] = _modules(EncoderLayer(*shape, dropout) for shape in plans[0])
        self.decoder: Sequence[DecoderLayer] = _modules(DecoderLayer(*shape, dropout, width) for shape in plans[1])

    def parts(self) -> dict[str, list[Any]]:
        """See `HasParts`."""
        return {
            "embeddings": [*super().parts()["embeddings"], self.source_positions, self.target_positions],
            "encoder": [self.encoder_in, self.encoder, self.encoder_out],
            "decoder": [self.decoder_in, self.decoder, self.decoder_out],
        }

    def decoder_output(self, source: Tensor, target_in: Tensor) -> Tensor:
        """See `EncoderDecoder`."""
        return self._decode(self._encode(source), target_in)[0]

    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """See `ShowsAttention`."""
        with torch.inference_mode():
            _, weights = self._decode(self._encode(source), target_in)
        return {"cross": torch.stack(weights)}  # [layers, 1, T, S]

    def decodable(self, dtype: str = "float32") -> EncoderDecoderInference:
        """See `Model`."""
        return EncoderDecoderInference(folded(self), dtype)

    def start(self, source: Tensor) -> FixedState:
        """See `EncoderDecoder`."""
        encoded = self._encode(source)
        windows = (layer.convolution.zeros(encoded.keys) for layer in self.decoder)
        return FixedState(encoded, (source.new_zeros(len(source)), *windows))

    def next_output(self, tokens: Tensor, state: FixedState) -> tuple[Tensor, FixedState]:
        """See `EncoderDecoder`. The state is the position, and the last k - 1 inputs of each layer."""
        source, (position, *windows) = Source(*state.source), state.target
        embedded = self.target_embedding(tokens) + self.target_positions.at(position)
        x = self.decoder_in(embedded)
        for number, layer in enumerate(self.decoder):
            x, windows[number] = layer.step(x, embedded, source, windows[number])
        return self.decoder_out(x), FixedState(source, (position + 1, *windows))

    def training_flops(self, source_lengths: Lengths, target_lengths: Lengths) -> dict[str, float]:
        """See `CountsFlops`. Each position meets each weight of its side once; a multiply-add is two operations."""
        S, T, f = float(source_lengths.sum()), float(target_lengths.sum()), self.config.d_model
        encoder, decoder = self._weights
        forward = {
            "encoder": 2 * S * encoder,
            "decoder": 2 * T * decoder,
            "attention": 4 * f * len(self.decoder) * float((source_lengths * target_lengths).sum()),
            "output layer": 2 * T * f * self.vocabulary_size,
        }
        return with_backward(forward)

    def _encode(self, source: Tensor) -> Source:
        padding = source == PAD
        embedded = self.dropout(self.source_embedding(source) + self.source_positions(0, source.size(1)))
        x = self.encoder_in(embedded)
        for layer in self.encoder:
            x = layer(x.masked_fill(padding[:, :, None], 0.0))
        keys = self.encoder_out(x)
        if keys.requires_grad:  # the end of section 3.4
            keys.register_hook(lambda gradient: gradient / (2 * len(self.decoder)))
        return Source(keys, _summed(keys, embedded), padding)

    def _decode(self, source: Source, target_in: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The decoder output [B, T, f], and the weights of attention of each layer."""
        embedded = self.dropout(self.target_embedding(target_in) + self.target_positions(0, target_in.size(1)))
        x, collected = self.decoder_in(embedded), []
        for layer in self.decoder:
            x, weights = layer(x, embedded, source)
            collected.append(weights)
        return self.dropout(self.decoder_out(x)), collected

    @cached_property
    def _weights(self) -> tuple[int, int]:
        """Elements of the matrices of the encoder, and of the decoder."""
        sides = [(self.encoder_in, self.encoder, self.encoder_out), (self.decoder_in, self.decoder, self.decoder_out)]
        encoder, decoder = (
            sum(each.weight.numel() for each in _modules(side).modules() if isinstance(each, (nn.Linear, Convolution)))
            for side in sides
        )
        return encoder, decoder


def _summed(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two terms of equal variance, with the same variance (section 3.4)."""
    return (a + b) * math.sqrt(0.5)


def _shapes(layers: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(channels, kernel) of each layer -> (C, C', k); the first has as many inputs as outputs."""
    inputs = [layers[0][0], *(channels for channels, _ in layers)]
    return [(before, channels, kernel) for before, (channels, kernel) in zip(inputs, layers, strict=False)]


def _modules(layers: Any) -> Any:
    return nn.ModuleList(layers)
