"""Sockeye 3: its model, traced as its trainer does, and its loss, with PyTorch's Adam."""

from __future__ import annotations

from typing import Any

import sockeye
import torch
from sockeye import constants, data_io, encoder, loss, model, training, transformer
from torch import nn

from benchmarks.peers.training.serve import ADAM, DROPOUT, PAD, SMOOTHING, Batch, Setup, System, serve, system_of

POSITIONS = 1024


def build(setup: Setup) -> System:
    if setup.dtype != "float32":
        raise SystemExit("Sockeye trains in float32 on a CPU")
    network = random_model(setup).train()
    losses = [loss.CrossEntropyLoss(label_smoothing=SMOOTHING, ignore_label=PAD)]
    whole = training.ModelWithLoss(model=network, losses=losses)
    optimizer = torch.optim.Adam(network.parameters(), **ADAM)
    traced: list[Any] = []

    def step(batch: Batch) -> None:
        inputs = arguments(batch)
        if not traced:
            traced.append(torch.jit.trace(whole, inputs, strict=False))  # type: ignore[no-untyped-call]
        total, _, _ = traced[0](*inputs)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()

    return system_of(f"{sockeye.__version__}, torch {torch.__version__}", setup, step)


def arguments(batch: Batch) -> tuple[Any, ...]:
    """Return the inputs of its model: ids with a dimension of factors, lengths, and labels."""
    source_length, target_length = ((ids != PAD).sum(1).int() for ids in (batch.source, batch.target_out))
    return (
        batch.source.int()[:, :, None],
        torch.stack([source_length, torch.zeros_like(source_length)], dim=1),  # the length, and that of a prefix
        batch.target_in.int()[:, :, None],
        target_length,
        {constants.TARGET_LABEL_NAME: batch.target_out.int()},
    )


def random_model(setup: Setup) -> Any:
    """Return the paper's model: post-norm, one embedding for source, target and output."""
    lengths = {"max_seq_len_source": POSITIONS, "max_seq_len_target": POSITIONS}
    stack = transformer.TransformerConfig(
        model_size=setup.width,
        attention_heads=setup.heads,
        feed_forward_num_hidden=setup.inner,
        act_type="relu",
        num_layers=setup.layers,
        dropout_attention=0.0,
        dropout_act=0.0,
        dropout_prepost=DROPOUT,
        positional_embedding_type="fixed",
        preprocess_sequence="",
        postprocess_sequence="drn",
        depth_key_value=setup.width,
        **lengths,
    )
    embedding = encoder.EmbeddingConfig(vocab_size=setup.vocabulary, num_embed=setup.width, dropout=DROPOUT)
    config = model.ModelConfig(
        config_data=data_io.DataConfig(data_statistics=None, num_source_factors=1, num_target_factors=1, **lengths),
        vocab_source_size=setup.vocabulary,
        vocab_target_size=setup.vocabulary,
        config_embed_source=embedding,
        config_embed_target=embedding,
        config_encoder=stack,
        config_decoder=stack,
        weight_tying_type=constants.WEIGHT_TYING_SRC_TRG_SOFTMAX,
    )
    network = model.SockeyeModel(config)
    for name, parameter in network.named_parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return network


if __name__ == "__main__":
    serve(build)
