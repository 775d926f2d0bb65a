"""The presets of parsers."""

from __future__ import annotations

from nmt_cli.presets import preset

# Dropout from the authors' code; the paper only says that the rates were chosen on section 22.
preset(
    "parsing_wsj", "the parser of section 6.3; choose dropout and learning rate on section 22",
    num_layers=4, d_model=1024, dropout=0.2, attention_dropout=0.2, warmup_steps=16_000,
)  # fmt: skip
preset(
    "parsing_small", "a small parser for a CPU",
    num_layers=3, d_model=192, d_ff=512, num_heads=4, warmup_steps=500, learning_rate_scale=0.5,
    batch_tokens=1536, max_steps=10_000, save_every="500", validate_every="1000",
)  # fmt: skip
