"""The settings of models, and where the models are. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from nmt_cli.errors import UsageError
from nmt_cli.registry import configures, option


@configures("model", "transformer", "nmt_cli.models.transformer:Transformer")
@dataclass(frozen=True)
class TransformerConfig:
    """Size and regularisation of a Transformer. The defaults are the base model of Table 3."""

    num_layers: int = option(
        6, "N: layers of the encoder, and of the decoder.", minimum=1, maximum=1000
    )
    num_decoder_layers: int | None = option(
        None, "Layers of the decoder. [default: as many as of the encoder]", minimum=1, maximum=1000
    )
    d_model: int = option(512, "Width of the model.", minimum=2)
    d_ff: int = option(2048, "Width of the feed-forward layers.", minimum=1)
    num_heads: int = option(8, "h: attention heads.", minimum=1)
    d_k: int | None = option(None, "Width of a query and a key. [default: d_model / h]", minimum=1)
    d_v: int | None = option(None, "Width of a value. [default: d_model / h]", minimum=1)
    dropout: float = option(
        0.1, "P_drop, on sub-layer outputs and on embeddings.", minimum=0.0, maximum=0.99
    )
    attention_dropout: float = option(
        0.0, "Dropout on attention weights (paper: 0).", minimum=0.0, maximum=0.99
    )
    feed_forward_dropout: float = option(
        0.0, "Dropout in feed-forward layers (paper: 0).", minimum=0.0, maximum=0.99
    )
    attention_biases: bool = option(
        False, "Add biases to the four projections of attention (paper: none)."
    )
    output_bias: bool = option(False, "Add a bias to the logits (paper: none).")
    norm: str = option(
        "post",
        "Layer normalisation after sub-layers, as in the paper, or before.",
        choices=("post", "pre"),
    )
    positions: str = option(
        "sinusoidal",
        "Positional encoding of section 3.5, learned (row E), or none, for attention that encodes "
        "positions.",
        choices=("sinusoidal", "learned", "none"),
    )
    max_positions: int = option(1024, "Rows of learned positional embeddings.", minimum=1)
    activation: str = option(
        "relu",
        "Activation of feed-forward layers (paper: ReLU).",
        choices=("relu", "gelu", "swish", "squared_relu"),
    )
    gated_feed_forward: bool = option(
        False, "Multiply activations by another projection, without biases."
    )
    query_key_norm: bool = option(
        False, "Normalise each query and key of a head (Henry et al. 2020)."
    )
    zero_sublayers: bool = option(
        False, "Start with sub-layers whose outputs are zero (Zhang et al. 2019)."
    )

    @property
    def decoder_layers(self) -> int:
        """Layers of the decoder."""
        return self.num_decoder_layers or self.num_layers

    def head_widths(self) -> tuple[int, int]:
        """d_k and d_v.

        Raises:
            UsageError: one of them defaults to d_model / h, and h does not divide d_model.
        """
        width, rest = divmod(self.d_model, self.num_heads)
        if rest and (self.d_k is None or self.d_v is None):
            raise UsageError(
                f"--num-heads {self.num_heads} does not divide --d-model {self.d_model}: change "
                "one of them, or set --d-k and --d-v"
            )
        return self.d_k or width, self.d_v or width
