"""PyTorch alone: torch.nn.Transformer as a user would train it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.peers.training.serve import (
    ADAM,
    DROPOUT,
    PAD,
    SMOOTHING,
    Batch,
    Setup,
    System,
    serve,
    system_of,
)
from benchmarks.peers.weights import sinusoids

POSITIONS = 1024


class Translation(nn.Module):
    """nn.Transformer with one embedding for source, target and output."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.embedding = nn.Embedding(setup.vocabulary, setup.width, PAD)
        nn.init.normal_(self.embedding.weight, std=setup.width**-0.5)
        self.positions = torch.from_numpy(sinusoids(POSITIONS, setup.width))
        self.dropout = nn.Dropout(DROPOUT)
        self.stacks = nn.Transformer(
            setup.width,
            setup.heads,
            setup.layers,
            setup.layers,
            setup.inner,
            DROPOUT,
            batch_first=True,
        )

    def embed(self, ids: Tensor) -> Tensor:
        scaled: Tensor = self.embedding(ids) * self.embedding.embedding_dim**0.5
        embedded: Tensor = self.dropout(scaled + self.positions[: ids.size(1)])
        return embedded

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """The logits of the next tokens: [B, S], [B, T] -> [B, T, V]."""
        length = target.size(1)
        padding = source == PAD
        states = self.stacks(
            self.embed(source),
            self.embed(target),
            tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return F.linear(states, self.embedding.weight)


def build(setup: Setup) -> System:
    model = Translation(setup).train()
    optimizer = torch.optim.Adam(model.parameters(), **ADAM, fused=True)

    def step(batch: Batch) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=setup.dtype == "bfloat16"):
            logits = model(batch.source, batch.target_in).flatten(0, 1)
            loss = F.cross_entropy(
                logits, batch.target_out.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING
            )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return system_of(torch.__version__, setup, step)


if __name__ == "__main__":
    serve(build, ("float32", "bfloat16"))
