"""The presets: named models, each with only the settings that differ from the base model, as in Table 3.

The defaults of all components are the base model and the training of section 5.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from nmt_cli.errors import UsageError


class Preset(NamedTuple):
    """A named model: a description, the settings that differ from the base model, and the module that has it."""

    about: str
    differs: dict[str, Any]
    module: str


PRESETS: dict[str, Preset] = {}
"""The presets of all modules that have been imported: `registry.discover` imports those of annexes and plug-ins."""


def preset(name: str, about: str, /, **differs: Any) -> None:
    """Register a preset; `differs` are settings of `nmt train`, where the name of a kind selects a component.

    Raises:
        UsageError: there is another preset of this name.
    """
    module = sys._getframe(1).f_globals["__name__"]
    taken = PRESETS.setdefault(name, Preset(about, differs, module))
    if taken != (about, differs, module):  # a module may be loaded again
        raise UsageError(f"preset {name!r} is registered twice: by {taken.module} and by {module}. Rename one.")


def _table3(row: str, about: str, **differs: Any) -> None:
    preset(f"table3_{row}", f"Table 3, row {row[0]}: {about}", **differs)


MULTI30K: dict[str, Any] = {"batch_tokens": 2048, "max_steps": 8000, "save_every": "250"}
"""The training of a small model on Multi30k on a CPU."""

preset("transformer_base", "the base model (Table 3, first row)")
BIG = {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "max_steps": 300_000, "save_every": "600"}
BIG["validate_every"] = "3000"  # not at each checkpoint: on 8 GPUs, 600 steps may take 10 seconds
preset("transformer_big", "the big model (Table 3, last row)", **BIG, dropout=0.3)
preset("transformer_big_en_fr", "the big model for EN-FR: P_drop = 0.1 (section 6.1)", **BIG)
_table3("A_h1", "one head", num_heads=1)
_table3("A_h4", "4 heads", num_heads=4)
_table3("A_h16", "16 heads", num_heads=16)
_table3("A_h32", "32 heads", num_heads=32)
_table3("B_dk16", "smaller keys", d_k=16, d_v=64)
_table3("B_dk32", "smaller keys", d_k=32, d_v=64)
_table3("C_N2", "2 layers", num_layers=2)
_table3("C_N4", "4 layers", num_layers=4)
_table3("C_N8", "8 layers", num_layers=8)
_table3("C_d256", "narrower", d_model=256)
_table3("C_d1024", "wider", d_model=1024)
_table3("C_dff1024", "smaller feed-forward layer", d_ff=1024)
_table3("C_dff4096", "larger feed-forward layer", d_ff=4096)
_table3("D_dropout0.0", "no dropout", dropout=0.0)
_table3("D_dropout0.2", "more dropout", dropout=0.2)
_table3("D_smoothing0.0", "no label smoothing", label_smoothing=0.0)
_table3("D_smoothing0.2", "more label smoothing", label_smoothing=0.2)
_table3("E", "learned positions", positions="learned")
preset(
    "multi30k", "a small model for Multi30k on a CPU",
    num_layers=4, d_model=128, d_ff=256, num_heads=4, dropout=0.3, warmup_steps=1000, **MULTI30K,
)  # fmt: skip
# Araabi and Monz 2020, Table 2, for 10,000 and for 80,000 pairs of IWSLT14. Their layer dropout (decoder: 0.2, 0.1)
# and word dropout (0.1, 0.2) are not here. The steps are ours: about 150 and 100 epochs of sentences like theirs.
preset(
    "pairs_10k", "for about 10,000 pairs and a vocabulary of 10,000 (Araabi and Monz 2020)",
    num_layers=5, d_ff=1024, num_heads=2, dropout=0.3, feed_forward_dropout=0.3, label_smoothing=0.5,
    batch_tokens=4096, max_steps=10_000, save_every="250",
)  # fmt: skip
preset(
    "pairs_100k", "for about 100,000 pairs and a vocabulary of 15,000 (Araabi and Monz 2020)",
    num_layers=5, num_heads=2, dropout=0.3, label_smoothing=0.4,
    batch_tokens=8192, max_steps=30_000, save_every="500",
)  # fmt: skip
# Wu, Cotterell and Hulden 2021, as in their program (shijie-wu/neural-transducer, the scripts of SIGMORPHON 2022).
preset(
    "transduction", "for words: inflection, pronunciation, spelling (Wu, Cotterell and Hulden 2021)",
    num_layers=4, d_model=256, d_ff=1024, num_heads=4, norm="pre", attention_biases=True, output_bias=True,
    dropout=0.3, attention_dropout=0.3, feed_forward_dropout=0.3, clip_norm=1.0,
    batch_tokens=16_384, batch_sentences=400, max_steps=20_000, save_every="500",
)  # fmt: skip
preset(
    "quickstart", "a tiny model for number names on a CPU",
    num_layers=2, d_model=128, d_ff=256, num_heads=4, warmup_steps=300, learning_rate_scale=0.5,
    batch_tokens=2048, max_steps=600, save_every="50", validate_every="100", log_every=50,
)  # fmt: skip
