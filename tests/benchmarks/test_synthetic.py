"""The model and the sources of the benchmarks, and nmt's adapter on them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch

from benchmarks.peers import ctranslate2, nmt, serve, weights
from benchmarks.peers.serve import Size
from benchmarks.synthetic import ALPHA, line, random_sources, save_model
from nmt_cli.layers.embedding import sinusoids
from nmt_cli.weights import load_model

SIZE = Size(layers=1, width=16, inner=24, heads=2, vocabulary=50)


def test_programs_translate_to_the_same_words_of_the_fixed_length(tmp_path: Path) -> None:
    fields = {
        **dataclasses.asdict(SIZE),
        "checkpoint": str(save_model(tmp_path / "model", SIZE)),
        "dtype": "float32",
    }
    sources = random_sources(20, 3, 12, SIZE.vocabulary)
    assert {len(source) for source in sources} <= set(range(3, 13))
    greedy, wide = (
        serve.Setup(**fields, cores=2, beam=beam, alpha=ALPHA, steps=9) for beam in (1, 4)
    )
    our_outputs, their_outputs = (
        peer.build(greedy).translate(sources) for peer in (nmt, ctranslate2)
    )
    assert [row[:8] for row in their_outputs] == our_outputs
    for outputs in (our_outputs, nmt.build(wide).translate(sources)):
        assert [len(output) for output in outputs] == [8] * 20  # and the end of the sentence
        assert len({tuple(output) for output in outputs}) > 1


def test_the_words_of_a_line_have_their_ids(tmp_path: Path) -> None:
    _, task = load_model(save_model(tmp_path / "model", SIZE))
    assert task.encode_source(line([4, 27, 49])) == [4, 27, 49]
    assert task.target_vocabulary_size == SIZE.vocabulary


def test_other_programs_read_the_weights(tmp_path: Path) -> None:
    checkpoint = save_model(tmp_path / "model", SIZE)
    model, _ = load_model(checkpoint)
    read = weights.read(str(checkpoint))
    assert read.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        assert np.array_equal(read[name], parameter.detach().numpy())
    layers = dict(weights.fairseq_layers(read))
    assert np.array_equal(
        layers["decoder.layers.0.encoder_attn.q_proj.weight"],
        read["decoder.0.cross_attention.w_q.weight"],
    )
    assert not layers["decoder.layers.0.encoder_attn.q_proj.bias"].any()
    assert "encoder.layers.0.final_layer_norm.bias" in layers


def test_positions_are_those_of_the_model() -> None:
    assert torch.allclose(
        torch.from_numpy(weights.sinusoids(40, 16)), sinusoids(0, 40, 16), atol=1e-6
    )
