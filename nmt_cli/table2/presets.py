"""The presets of the systems that Table 2 compares the Transformer with: in their papers' sizes, and small ones."""

from __future__ import annotations

from typing import Any

from nmt_cli.presets import MULTI30K, preset

# Adam's usual constants, where a paper does not give them.
ADAM: dict[str, Any] = {"beta2": 0.999, "epsilon": 1e-8, "label_smoothing": 0.0}

SMALL: dict[str, Any] = {"tie_embeddings": True, **MULTI30K}
"""For Multi30k on a CPU."""

# ByteNet.
preset(
    "bytenet_paper", "ByteNet for characters (nmt prepare --subwords character)",
    model="bytenet", schedule="constant", learning_rate=0.0003, **ADAM,
)  # fmt: skip
preset(
    "bytenet_small", "a small ByteNet for Multi30k on a CPU",
    model="bytenet", num_layers=10, d_model=162, dropout=0.2, schedule="constant", learning_rate=0.004,
    warmup_steps=200, **SMALL,
)  # fmt: skip

# ConvS2S: Gehring et al. 2017, sections 4.2 and 5.1; a batch of 48 sentences, or of 8 times 32, as tokens. The paper
# gives days, not steps. It has no dropout rates either; they are from the authors' commands.
CONVS2S: dict[str, Any] = {
    "model": "convs2s", "optimizer": "sgd", "schedule": "constant", "learning_rate": 0.25, "clip_norm": 0.1,
    "label_smoothing": 0.0, "max_steps": 1_000_000, "save_every": "30m",
}  # fmt: skip
preset("convs2s_paper", "ConvS2S for WMT 2014 EN-DE (Gehring et al. 2017)", **CONVS2S, batch_tokens=1400)
# The paper's list of convolutions, whose receptive field is the 25 words that it names; it calls these 15 layers.
preset(
    "convs2s_paper_en_fr", "ConvS2S for WMT 2014 EN-FR",
    **CONVS2S, convolutions="512x3*5,768x3*4,1024x3*3,2048x1,4096x1", dropout=0.1, batch_tokens=8000,
)  # fmt: skip
preset(
    "convs2s_small", "a small ConvS2S for Multi30k on a CPU",
    model="convs2s", d_model=128, convolutions="128x3*7", decoder_convolutions="128x3*4", max_positions=256,
    warmup_steps=1000, learning_rate_scale=2.8, clip_norm=1.0, **SMALL,
)  # fmt: skip

# Deep-Att: Zhou et al. 2016, section 4.3: 500 to 800 sentences a batch, and seven passes over 36 million of them. The
# rate is that of all weights but the recurrent ones.
preset(
    "deep_att_paper", "Deep-Att for WMT 2014 EN-FR (Zhou et al. 2016)",
    model="deep_att", schedule="constant", learning_rate=0.00004, **ADAM,
    batch_tokens=20_000, max_steps=380_000, save_every="600",
)  # fmt: skip
preset(
    "deep_att_small", "Deep-Att for Multi30k on a CPU, of the size of multi30k",
    model="deep_att", num_layers=3, num_decoder_layers=4, d_model=96, d_embedding=96, dropout=0.2,
    warmup_steps=400, learning_rate_scale=0.4, **SMALL,
)  # fmt: skip

# GNMT of the paper's size: Adam at 0.0002, as it begins, and a decay for its SGD, whose rate is halved repeatedly. A
# batch is about 128 sentences. In Table 2, the operations for German are a sixth of those for French.
GNMT: dict[str, Any] = {
    "model": "gnmt", **ADAM, "schedule": "linear_decay", "warmup_steps": 1, "learning_rate_scale": 0.0064,
    "clip_norm": 5.0, "batch_tokens": 4096, "save_every": "600",
}  # fmt: skip
preset("gnmt_paper", "GNMT of Wu et al. (2016), for English to German", **GNMT, max_steps=340_000, decay_steps=340_000)
preset("gnmt_paper_en_fr", "GNMT for WMT 2014 EN-FR", **GNMT, dropout=0.2, max_steps=2_000_000, decay_steps=2_000_000)
preset(
    "gnmt_small", "GNMT for Multi30k on a CPU, of the size of multi30k",
    model="gnmt", num_layers=4, d_model=124, init_range=0.2, warmup_steps=400, learning_rate_scale=1.5,
    clip_norm=5.0, **SMALL,
)  # fmt: skip

# The mixture of experts.
preset(
    "moe_paper",
    "mixture of 2,048 experts between LSTMs (Shazeer et al. 2017), divided among processes: 19 GB each of 8",
    model="moe", model_parallel=True, label_smoothing=0.0, warmup_steps=2000, batch_tokens=512_000, keep_last=1,
)  # fmt: skip
preset(
    "moe_small", "the same with 8 small experts, for Multi30k on a CPU",
    model="moe", d_model=128, d_hidden=128, d_ff=128, experts=8, experts_per_token=2, dropout=0.3,
    warmup_steps=500, learning_rate_scale=2.0, **SMALL,
)  # fmt: skip
