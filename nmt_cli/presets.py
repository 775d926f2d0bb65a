"""The presets: named models, each with only the fields that differ from the base model, as in Table 3.

The defaults of all components are the base model and the training of section 5.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Preset(NamedTuple):
    """A named model: a description, and the fields that differ from the base model."""

    about: str
    differs: dict[str, Any]


def _preset(about: str, **differs: Any) -> Preset:
    return Preset(about, differs)


def _table3(row: str, **differs: Any) -> Preset:
    return Preset(f"Table 3, row {row}", differs)


def _gnmt(about: str, steps: int, **differs: Any) -> Preset:
    """GNMT of the paper's size: Adam at 0.0002, as it begins; a decay for its SGD, whose rate is halved repeatedly."""
    settings = {
        "model": "gnmt",
        "label_smoothing": 0.0,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "schedule": "linear_decay",
        "warmup_steps": 1,
        "learning_rate_scale": 0.0064,
        "clip_norm": 5.0,
        "batch_tokens": 4096,  # about 128 sentences
        "max_steps": steps,
        "decay_steps": steps,
        "save_every": "600",
    }
    return Preset(about, {**settings, **differs})


def _convs2s(about: str, **differs: Any) -> Preset:
    """ConvS2S as Gehring et al. (2017) train it."""
    settings = {
        "model": "convs2s",
        "optimizer": "sgd",
        "schedule": "constant",
        "learning_rate": 0.25,
        "clip_norm": 0.1,
        "label_smoothing": 0.0,
        "max_steps": 1_000_000,
        "save_every": "30m",
    }
    return Preset(about, {**settings, **differs})


def _on_multi30k(about: str, **differs: Any) -> Preset:
    """A small model for Multi30k on a CPU."""
    return Preset(about, {**differs, "batch_tokens": 2048, "max_steps": 8000, "save_every": 250})


PRESETS: dict[str, Preset] = {
    "transformer_base": Preset("the base model (Table 3, first row)", {}),
    "transformer_big": Preset(
        "the big model (Table 3, last row)",
        {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3, "max_steps": 300_000, "save_every": "600"},
    ),
    "transformer_big_en_fr": Preset(
        "the big model for EN-FR: P_drop = 0.1 (section 6.1)",
        {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "max_steps": 300_000, "save_every": "600"},
    ),
    "table3_A_h1": _table3("A: one head", num_heads=1),
    "table3_A_h4": _table3("A: 4 heads", num_heads=4),
    "table3_A_h16": _table3("A: 16 heads", num_heads=16),
    "table3_A_h32": _table3("A: 32 heads", num_heads=32),
    "table3_B_dk16": _table3("B: smaller keys", d_k=16, d_v=64),
    "table3_B_dk32": _table3("B: smaller keys", d_k=32, d_v=64),
    "table3_C_N2": _table3("C: 2 layers", num_layers=2),
    "table3_C_N4": _table3("C: 4 layers", num_layers=4),
    "table3_C_N8": _table3("C: 8 layers", num_layers=8),
    "table3_C_d256": _table3("C: narrower", d_model=256),
    "table3_C_d1024": _table3("C: wider", d_model=1024),
    "table3_C_dff1024": _table3("C: smaller feed-forward layer", d_ff=1024),
    "table3_C_dff4096": _table3("C: larger feed-forward layer", d_ff=4096),
    "table3_D_dropout0.0": _table3("D: no dropout", dropout=0.0),
    "table3_D_dropout0.2": _table3("D: more dropout", dropout=0.2),
    "table3_D_smoothing0.0": _table3("D: no label smoothing", label_smoothing=0.0),
    "table3_D_smoothing0.2": _table3("D: more label smoothing", label_smoothing=0.2),
    "table3_E": _table3("E: learned positions", positions="learned"),
    "parsing_wsj": _preset(
        "the parser of section 6.3; choose dropout and learning rate on section 22",
        num_layers=4,
        d_model=1024,
        # From the authors' code; the paper only says that these were chosen on section 22.
        dropout=0.2,
        attention_dropout=0.2,
        warmup_steps=16_000,
    ),
    "parsing_small": _preset(
        "a small parser for a CPU",
        num_layers=3,
        d_model=192,
        d_ff=512,
        num_heads=4,
        warmup_steps=500,
        learning_rate_scale=0.5,
        batch_tokens=1536,
        max_steps=10_000,
        save_every="500",
        validate_every="1000",
    ),
    "multi30k": _on_multi30k(
        "a small model for Multi30k on a CPU",
        num_layers=4,
        d_model=128,
        d_ff=256,
        num_heads=4,
        dropout=0.3,
        warmup_steps=1000,
    ),
    # Araabi and Monz 2020, Table 2, for 10,000 and for 80,000 pairs of IWSLT14. Their layer dropout (decoder: 0.2, 0.1)
    # and word dropout (0.1, 0.2) are not here. The steps are ours: about 150 and 100 epochs of sentences like theirs.
    "pairs_10k": _preset(
        "for about 10,000 pairs and a vocabulary of 10,000 (Araabi and Monz 2020)",
        num_layers=5,
        d_ff=1024,
        num_heads=2,
        dropout=0.3,
        feed_forward_dropout=0.3,
        label_smoothing=0.5,
        batch_tokens=4096,
        max_steps=10_000,
        save_every="250",
    ),
    "pairs_100k": _preset(
        "for about 100,000 pairs and a vocabulary of 15,000 (Araabi and Monz 2020)",
        num_layers=5,
        num_heads=2,
        dropout=0.3,
        label_smoothing=0.4,
        batch_tokens=8192,
        max_steps=30_000,
        save_every="500",
    ),
    # Gehring et al. 2017, sections 4.2 and 5.1; a batch of 48 sentences, or of 8 times 32, as tokens. The paper gives
    # days, not steps. It has no dropout rates either; they are from the authors' commands.
    "convs2s_paper": _convs2s("ConvS2S for WMT 2014 EN-DE (Gehring et al. 2017)", batch_tokens=1400),
    "convs2s_paper_en_fr": _convs2s(
        "ConvS2S for WMT 2014 EN-FR",
        # The paper's list, whose receptive field is the 25 words that it names; it calls these 15 layers.
        convolutions="512x3*5,768x3*4,1024x3*3,2048x1,4096x1",
        dropout=0.1,
        batch_tokens=8000,
    ),
    "convs2s_small": _on_multi30k(
        "a small ConvS2S for Multi30k on a CPU",
        model="convs2s",
        d_model=128,
        convolutions="128x3*7",
        decoder_convolutions="128x3*4",
        max_positions=256,
        tie_embeddings=True,
        warmup_steps=1000,
        learning_rate_scale=2.8,
        clip_norm=1.0,
    ),
    # In Table 2, the operations of English to German are a sixth of those of English to French.
    "gnmt_paper": _gnmt("GNMT of Wu et al. (2016), for English to German", 340_000),
    "gnmt_paper_en_fr": _gnmt("GNMT for WMT 2014 EN-FR", 2_000_000, dropout=0.2),
    "gnmt_small": _on_multi30k(
        "GNMT for Multi30k on a CPU, of the size of multi30k",
        model="gnmt",
        num_layers=4,
        d_model=124,
        init_range=0.2,
        tie_embeddings=True,
        warmup_steps=400,
        learning_rate_scale=1.5,
        clip_norm=5.0,
    ),
    "moe_paper": Preset(
        "mixture of 2,048 experts between LSTMs (Shazeer et al. 2017): 140 GB of weights, gradients and Adam's state",
        {"model": "moe", "label_smoothing": 0.0, "warmup_steps": 2000, "batch_tokens": 512_000, "keep_last": 1},
    ),
    "moe_small": _on_multi30k(
        "the same with 8 small experts, for Multi30k on a CPU",
        model="moe",
        d_model=128,
        d_hidden=128,
        d_ff=128,
        experts=8,
        experts_per_token=2,
        dropout=0.3,
        tie_embeddings=True,
        warmup_steps=500,
        learning_rate_scale=2.0,
    ),
    "quickstart": _preset(
        "a tiny model for number names on a CPU",
        num_layers=2,
        d_model=128,
        d_ff=256,
        num_heads=4,
        warmup_steps=300,
        learning_rate_scale=0.5,
        batch_tokens=2048,
        max_steps=600,
        save_every="50",
        validate_every="100",
        log_every=50,
    ),
    "bytenet_paper": _preset(
        "ByteNet for characters (nmt prepare --subwords character)",
        model="bytenet",
        schedule="constant",
        learning_rate=0.0003,
        # The paper says no more than Adam: its usual constants.
        beta2=0.999,
        epsilon=1e-8,
        label_smoothing=0.0,
    ),
    "bytenet_small": _on_multi30k(
        "a small ByteNet for Multi30k on a CPU",
        model="bytenet",
        num_layers=10,
        d_model=162,
        dropout=0.2,
        tie_embeddings=True,
        schedule="constant",
        learning_rate=0.004,
        warmup_steps=200,
    ),
    # Zhou et al. 2016, section 4.3: 500 to 800 sentences a batch, and seven passes over 36 million of them. The rate is
    # that of all weights but the recurrent ones. Adam's constants are not given: its usual ones.
    "deep_att_paper": _preset(
        "Deep-Att for WMT 2014 EN-FR (Zhou et al. 2016)",
        model="deep_att",
        schedule="constant",
        learning_rate=0.00004,
        beta2=0.999,
        epsilon=1e-8,
        label_smoothing=0.0,
        batch_tokens=20_000,
        max_steps=380_000,
        save_every="600",
    ),
    "deep_att_small": _on_multi30k(
        "Deep-Att for Multi30k on a CPU, of the size of multi30k",
        model="deep_att",
        num_layers=3,
        num_decoder_layers=4,
        d_model=96,
        d_embedding=96,
        tie_embeddings=True,
        dropout=0.2,
        warmup_steps=400,
        learning_rate_scale=0.4,
    ),
}

BY_SIZE = {
    "translation": ("transformer_base", "pairs_100k", "multi30k", "quickstart"),
    "parsing": ("parsing_wsj", "parsing_small"),
}
"""By task, presets for corpora of different sizes, the largest model first."""
