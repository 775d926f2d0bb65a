"""The settings of the systems of Table 2 and of their training. Nothing here imports torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from nmt_cli.errors import UsageError, shown
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.registry import configures, option

_MOST_LAYERS = 1000


@configures("model", "bytenet", "nmt_cli.annexes.table2.bytenet:ByteNet")
@dataclass(frozen=True)
class ByteNetConfig:
    """Size and regularisation of a ByteNet. The defaults are from section 6, for characters."""

    num_layers: int = option(
        30, "N: layers of the encoder, and of the decoder.", minimum=1, maximum=_MOST_LAYERS
    )
    d_model: int = option(1600, "Width of the model.", minimum=2)
    kernel: int = option(3, "k: inputs of a convolution, an odd number.", minimum=1)
    max_dilation: int = option(
        16, "r: dilation doubles from block to block, from 1 to r, and again.", minimum=1
    )
    length_ratio: float = option(
        1.2,
        "a: a source of n tokens has a n + b columns for the target.",
        minimum=1.0,
        maximum=1000.0,
    )
    length_offset: int = option(0, "b: see --length-ratio.", minimum=0)
    dropout: float = option(
        0.0, "P_drop, on sub-layer outputs and on embeddings.", minimum=0.0, maximum=0.99
    )
    tie_embeddings: bool = option(False, "One matrix for the embeddings and the softmax layer.")

    def __post_init__(self) -> None:
        if self.d_model % 2:
            raise UsageError(
                f"--d-model {self.d_model} must be even: a block is half as wide inside"
            )
        if not self.kernel % 2:
            raise UsageError(
                f"--kernel {self.kernel} must be odd: as many tokens before as after each one"
            )

    def dilations(self) -> list[int]:
        """The dilation of each block (section 3.5)."""
        blocks_of_a_set = self.max_dilation.bit_length()
        return [2 ** (number % blocks_of_a_set) for number in range(self.num_layers)]

    def columns(self, length: Any) -> Any:
        """|t^|, the columns of sources of this length (section 3.2, equation 2).

        Args:
            length: a number, a tensor or an array, as the result.
        """
        return (self.length_ratio * length + self.length_offset) // 1


@configures("schedule", "constant", "nmt_cli.annexes.table2.constant:Constant")
@dataclass(frozen=True)
class ConstantConfig:
    learning_rate: float = option(0.001, "The constant rate.", minimum=0.0)
    warmup_steps: int = option(1, "Steps of linear warm-up.", minimum=1)


class ConvolutionLayer(NamedTuple):
    """The size of a convolutional layer."""

    channels: int
    kernel: int


@configures("model", "convs2s", "nmt_cli.annexes.table2.convs2s:ConvS2S")
@dataclass(frozen=True)
class ConvS2SConfig:
    """Size and regularisation of ConvS2S. The defaults are for WMT 2014 EN-DE (section 5.1)."""

    d_model: int = option(512, "Width of the embeddings and of the decoder's output.", minimum=1)
    convolutions: str = option(
        "512x3*10,768x3*3,2048x1*2",
        "Encoder layers, CHANNELSxKERNEL*LAYERS,... in order.",
        metavar="LAYERS",
    )
    decoder_convolutions: str | None = option(
        None, "Decoder layers in the same form. [default: as the encoder]", metavar="LAYERS"
    )
    dropout: float = option(
        0.2, "Dropout on embeddings, layer inputs and decoder output.", minimum=0.0, maximum=0.99
    )
    max_positions: int = option(1024, "Rows of the position embeddings.", minimum=1)
    tie_embeddings: bool = option(False, "One matrix for embeddings and output layer.")

    def __post_init__(self) -> None:
        self.widths()

    def widths(self) -> tuple[list[ConvolutionLayer], list[ConvolutionLayer]]:
        """The layers of the encoder, and of the decoder."""
        encoder = _layers_of(self.convolutions, "--convolutions")
        if self.decoder_convolutions is None:
            return encoder, encoder
        return encoder, _layers_of(self.decoder_convolutions, "--decoder-convolutions")


def _layers_of(text: str, flag: str) -> list[ConvolutionLayer]:
    """Return the layers of `text`, the value of `flag`, such as 512x3*10,2048x1."""
    layers: list[ConvolutionLayer] = []
    for group in text.split(","):
        match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,2})(?:\*([1-9]\d{0,2}))?", group.strip())
        if match is None:
            raise UsageError(
                f"{flag} takes CHANNELSxKERNEL or CHANNELSxKERNEL*LAYERS, such as "
                f"512x3*10,2048x1*2, not {shown(text)}"
            )
        channels, kernel, count = match.groups(default="1")
        layers += [ConvolutionLayer(int(channels), int(kernel))] * int(count)
        if len(layers) > _MOST_LAYERS:
            raise UsageError(f"{flag} has more than {_MOST_LAYERS:,} layers")
    return layers


@configures("model", "deep_att", "nmt_cli.annexes.table2.deep_att:DeepAtt")
@dataclass(frozen=True)
class DeepAttConfig:
    """Size and regularisation of Deep-Att. The defaults have 37.7 BLEU (section 4.2)."""

    num_layers: int = option(
        9, "n_e: layers of each of the encoder's two columns.", minimum=1, maximum=_MOST_LAYERS
    )
    num_decoder_layers: int = option(
        7, "n_d: layers of the decoder.", minimum=1, maximum=_MOST_LAYERS
    )
    d_model: int = option(512, "Width of the LSTM layers.", minimum=2)
    d_embedding: int = option(256, "Width of the embeddings.", minimum=1)
    dropout: float = option(
        0.1, "p_d, on the outputs of the LSTM layers.", minimum=0.0, maximum=0.99
    )
    tie_embeddings: bool = option(
        False, "One matrix for embeddings and output layer. Needs equal widths."
    )

    @property
    def d_context(self) -> int:
        """d_c, a quarter of the width of e: h and f of both columns (section 3.1, Interface)."""
        return 10 * self.d_model // 4

    def __post_init__(self) -> None:
        if self.tie_embeddings and self.d_embedding != self.d_model:
            raise UsageError(
                f"--tie-embeddings: --d-embedding {self.d_embedding} and --d-model {self.d_model} "
                "must be the same"
            )


@configures("criterion", "expected_reward", "nmt_cli.annexes.table2.expected_reward:ExpectedReward")
@dataclass(frozen=True)
class ExpectedRewardConfig:
    """Settings of the expected reward (Wu et al. 2016, section 5)."""

    samples: int = option(15, "m: samples of each sentence.", minimum=2)
    likelihood_weight: float = option(
        0.017, "alpha: weight of the likelihood beside the reward.", minimum=0.0
    )
    max_length_offset: int = option(
        50, "Maximum length of a sample: source tokens plus N.", minimum=0
    )


@configures("model", "gnmt", "nmt_cli.annexes.table2.gnmt:GNMT")
@dataclass(frozen=True)
class GNMTConfig:
    """Size and regularisation. The defaults are for English to German (sections 3 and 8.3)."""

    num_layers: int = option(
        8, "Layers of the encoder, and of the decoder.", minimum=2, maximum=_MOST_LAYERS
    )
    d_model: int = option(1024, "Width of embeddings, layers and attention.", minimum=1)
    dropout: float = option(
        0.3, "Dropout on the inputs of layers and on the output.", minimum=0.0, maximum=0.99
    )
    init_range: float = option(0.04, "Weights start uniform between -X and X.", minimum=0.0)
    tie_embeddings: bool = option(False, "Share one matrix among embeddings and output layer.")


@dataclass(frozen=True)
class ExpertsConfig:
    """The experts of a mixture."""

    experts: int = option(8, "n: experts in each mixture.", minimum=2)
    experts_per_token: int = option(2, "k: experts that a token is sent to.", minimum=2)
    importance_loss: float = option(
        0.01, "Weight of the loss that balances the gates of experts.", minimum=0.0
    )
    load_loss: float = option(
        0.01, "Weight of the loss that balances the tokens of experts.", minimum=0.0
    )

    def __post_init__(self) -> None:
        # With one expert, the gate is always 1 and cannot learn from the task.
        if not 2 <= self.experts_per_token <= self.experts:
            raise UsageError(
                f"--experts-per-token {self.experts_per_token} must be at least 2 and at most "
                f"--experts {self.experts}"
            )


@configures("model", "moe", "nmt_cli.annexes.table2.moe:MoE")
@dataclass(frozen=True)
class MoEConfig(ExpertsConfig):
    """Size and regularisation. The defaults are the paper's largest model (appendix E)."""

    d_model: int = option(512, "Width of embeddings, layers and attention.", minimum=2)
    d_hidden: int = option(
        2048, "Cells of an LSTM, projected to the width of the model.", minimum=2
    )
    d_ff: int = option(2048, "Hidden units of an expert.", minimum=1)
    experts: int = option(2048, "Experts in each of the two mixtures.", minimum=2)
    experts_per_token: int = option(4, "Experts that a token is sent to.", minimum=2)
    dropout: float = option(
        0.4, "Dropout on outputs of layers and on embeddings.", minimum=0.0, maximum=0.99
    )
    tie_embeddings: bool = option(False, "Share one matrix among embeddings and output layer.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_hidden < self.d_model:
            raise UsageError(
                f"--d-hidden {self.d_hidden} is below --d-model {self.d_model}; it is at least that"
            )


@configures("model", "moe_transformer", "nmt_cli.annexes.table2.moe_transformer:MoETransformer")
@dataclass(frozen=True)
class MoETransformerConfig(ExpertsConfig, TransformerConfig):
    """A Transformer's size and regularisation, and its experts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gated_feed_forward:
            raise UsageError("--gated-feed-forward cannot be used with experts")
        if self.zero_sublayers:
            raise UsageError("--zero-sublayers cannot be used with experts")


@configures("optimizer", "sgd", "nmt_cli.annexes.table2.sgd:sgd")
@dataclass(frozen=True)
class SGDConfig:
    """Settings of SGD. The defaults are from Gehring et al. 2017, section 4.2."""

    momentum: float = option(0.99, "Momentum.", minimum=0.0, maximum=1.0)
    nesterov: bool = option(True, "Use Nesterov momentum.")
