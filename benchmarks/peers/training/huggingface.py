"""Hugging Face transformers: MarianMTModel with the loss and the optimizer of its Trainer."""

from __future__ import annotations

import torch
import transformers
from transformers import MarianMTModel
from transformers.trainer_pt_utils import LabelSmoother

from benchmarks.peers.huggingface import config_of
from benchmarks.peers.training.serve import (
    ADAM,
    PAD,
    SMOOTHING,
    Batch,
    Setup,
    System,
    serve,
    system_of,
)

IGNORED = -100
"""The label of padding."""


def build(setup: Setup) -> System:
    model = MarianMTModel(config_of(setup)).train()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAM, weight_decay=0.0, fused=True)
    smoother = LabelSmoother(epsilon=SMOOTHING)

    def step(batch: Batch) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=setup.dtype == "bfloat16"):
            outputs = model(
                input_ids=batch.source,
                attention_mask=(batch.source != PAD).long(),
                decoder_input_ids=batch.target_in,
                use_cache=False,
            )
            loss = smoother(outputs, batch.target_out.masked_fill(batch.target_out == PAD, IGNORED))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return system_of(f"{transformers.__version__}, torch {torch.__version__}", setup, step)


if __name__ == "__main__":
    serve(build, ("float32", "bfloat16"))
