"""The settings of training methods and attention kernels after the paper, without torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from nmt_cli.annexes.later import noise
from nmt_cli.annexes.later.linear_decay import LinearDecayConfig
from nmt_cli.criteria.settings import LabelSmoothingConfig
from nmt_cli.optim.adam import AdamConfig
from nmt_cli.registry import configures, option


@configures("observer", "moving_average", "nmt_cli.annexes.later.moving_average:MovingAverage")
@dataclass(frozen=True)
class MovingAverageConfig:
    copies_of_weights = 1  # that it adds to a checkpoint

    ema_decay: float = option(
        0.0,
        "Decay of a moving average of the weights, such as 0.999, for checkpoints. 0 means none.",
        minimum=0.0,
        maximum=0.999999,
    )


@configures("optimizer", "adamw", "nmt_cli.annexes.later.adamw:adamw")
@dataclass(frozen=True)
class AdamWConfig(AdamConfig):
    weight_decay: float = option(
        0.01, "Share of a matrix that decays in a step, times the rate.", minimum=0.0
    )


@configures("optimizer", "muon", "nmt_cli.annexes.later.muon:muon")
@dataclass(frozen=True)
class MuonConfig(AdamWConfig):
    momentum: float = option(
        0.95, "Momentum of the matrices of hidden layers.", minimum=0.0, maximum=0.9999
    )
    matrix_rate: float = option(
        1.0, "Learning rate of these matrices, as a multiple of the schedule's.", minimum=0.0
    )


@configures("schedule", "cosine", "nmt_cli.annexes.later.cosine:Cosine")
@dataclass(frozen=True)
class CosineConfig(LinearDecayConfig):
    decay_steps: int = option(
        100_000, "Step of the lowest learning rate, usually --max-steps.", minimum=1
    )
    lowest_rate: float = option(
        0.1, "Rate after --decay-steps, as a share of the peak.", minimum=1e-6, maximum=1.0
    )


@configures("criterion", "r_drop", "nmt_cli.annexes.later.r_drop:RDrop")
@dataclass(frozen=True)
class RDropConfig(LabelSmoothingConfig):
    r_drop_alpha: float = option(
        5.0, "alpha: weight of the divergence between two passes.", minimum=0.0
    )
    # Runs of version 1.0 had twice the weight.
    sum_of_passes: bool = field(default=True, metadata={"before": False})


@configures(
    "criterion",
    "sampled_cross_entropy",
    "nmt_cli.annexes.later.sampled_cross_entropy:SampledCrossEntropy",
)
@dataclass(frozen=True)
class SampledCrossEntropyConfig(LabelSmoothingConfig):
    sampled_ids: int = option(
        2000, "Ids of the vocabulary besides the targets of a micro-batch.", minimum=1
    )


@configures("preparation", "new_vocabulary", "nmt_cli.annexes.later.new_vocabulary:adapt")
@dataclass(frozen=True)
class NewVocabularyConfig:
    new_vocabulary: bool = option(
        False,
        "With --init-from: the data may have another vocabulary. The weights of pieces that both "
        "have are kept.",
        may_change=True,
    )


@configures("preparation", "embeddings", "nmt_cli.annexes.later.muon:mark_embeddings")
@dataclass(frozen=True)
class EmbeddingsConfig:
    """Marking the embeddings for Muon has no settings."""


@configures("preparation", "freeze", "nmt_cli.annexes.later.freezing:freeze_parts")
@dataclass(frozen=True)
class FreezeConfig:
    freeze: tuple[str, ...] = option(
        (),
        "Do not train these parameters: embeddings, encoder, decoder, or a pattern of names. May "
        "be repeated.",
        metavar="PATTERN",
    )


@configures("attention", "alibi", "nmt_cli.annexes.later.alibi_attention:AlibiAttention")
@dataclass(frozen=True)
class AlibiAttentionConfig:
    """Attention with linear biases has no settings."""


@configures("attention", "relative", "nmt_cli.annexes.later.relative_attention:RelativeAttention")
@dataclass(frozen=True)
class RelativeAttentionConfig:
    """The k of section 3.2. The paper's base model has 16, its big model 8."""

    clipping_distance: int = option(
        16, "Maximum relative distance k. Larger distances are clipped.", minimum=0
    )


@configures("attention", "rotary", "nmt_cli.annexes.later.rotary_attention:RotaryAttention")
@dataclass(frozen=True)
class RotaryAttentionConfig:
    """Rotary attention has no settings."""


@configures(
    "attention", "restricted", "nmt_cli.annexes.later.restricted_attention:RestrictedAttention"
)
@dataclass(frozen=True)
class RestrictedAttentionConfig:
    """The r of section 4."""

    neighbourhood: int = option(
        128, "r: a query attends to r / 2 positions on each side.", minimum=2
    )


@configures("sentences", "batch_growth", "nmt_cli.annexes.later.batch_growth:BatchGrowth")
@dataclass(frozen=True)
class BatchGrowthConfig:
    batch_growth: int = option(
        1,
        "Updates grow evenly to their limits, from 1/N of them, in N epochs.",
        minimum=1,
        maximum=1000,
        metavar="N",
    )


@configures("sentences", "mixing", "nmt_cli.annexes.later.mixing:Mixing")
@dataclass(frozen=True)
class MixingConfig:
    mix_temperature: float = option(
        1.0,
        "1 takes the parts of the text by their sizes and weights. More makes them more equal.",
        minimum=1.0,
    )
    stage: tuple[str, ...] = option(
        (),
        "The parts of the text by epoch: 'bt*2 clean until 3', 'clean'. Repeat for each stage, in "
        "order.",
        metavar="'PART[*WEIGHT]... [until EPOCH]'",
    )


@configures("sentences", "variants", "nmt_cli.annexes.later.variants:Variants")
@dataclass(frozen=True)
class VariantsConfig:
    bpe_dropout: float = option(
        0.0,
        "Leave out each merge of BPE with this probability, drawn anew in each epoch.",
        minimum=0,
        maximum=1,
    )
    unigram_sampling: float = option(
        0.0,
        "Draw segmentations of a unigram vocabulary anew in each epoch, by their probability to "
        "this power. 0: off.",
        minimum=0,
    )
    noise: str = option(
        "",
        "Share of sentences that are altered: upper, title, typos, no_final_stop. Drawn anew in "
        "each epoch.",
        metavar="NAME=X,...",
    )

    def __post_init__(self) -> None:
        noise.parsed(self.noise)
