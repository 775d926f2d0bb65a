"""fairseq: its SequenceGenerator on a TransformerModel, ready for generation."""

from __future__ import annotations

import argparse
import types
from typing import Any

import fairseq
import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel, base_architecture
from fairseq.sequence_generator import SequenceGenerator

from benchmarks.peers.serve import Ids, Setup, System, serve
from benchmarks.peers.weights import fairseq_layers, read, sinusoids

THEIRS = [1, 3, 0, 2]
"""fairseq's ids of padding, the unknown word, begin and end of sentence. Of nmt they are 0 to 3."""
POSITIONS = 1024


def build(setup: Setup) -> System:
    torch.set_num_threads(setup.cores)
    words = dictionary(setup.vocabulary)
    model = load(setup, words)
    generator = SequenceGenerator(
        [model],
        words,
        beam_size=setup.beam,
        len_penalty=setup.alpha,
        max_len_a=0,
        max_len_b=setup.steps - 1,
        min_len=setup.steps - 1,
    )

    def translate(sources: Ids) -> Ids:
        width = max(map(len, sources))
        rows = [[words.pad()] * (width - len(row)) + [*row, words.eos()] for row in sources]
        lengths = torch.tensor([len(row) + 1 for row in sources])
        inputs = {"src_tokens": torch.tensor(rows), "src_lengths": lengths}
        hypotheses = generator.generate([model], {"net_input": inputs}, bos_token=words.bos())
        return [best["tokens"].tolist() for best, *_ in hypotheses]

    return System(f"{fairseq.__version__}, torch {torch.__version__}", translate)


def dictionary(size: int) -> Any:
    """Return a `Dictionary` of `size` entries."""
    words = Dictionary()
    for number in range(len(THEIRS), size):
        words.add_symbol(str(number))
    return words


def load(setup: Setup, words: Any) -> Any:
    """Return the model with nmt's weights, for the `Dictionary` of `words`."""
    values = {
        "embed_dim": setup.width,
        "ffn_embed_dim": setup.inner,
        "layers": setup.layers,
        "attention_heads": setup.heads,
    }
    sides = {
        f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in values.items()
    }
    arguments = argparse.Namespace(
        **sides,
        share_all_embeddings=True,
        max_source_positions=POSITIONS,
        max_target_positions=POSITIONS,
    )
    base_architecture(arguments)
    model: Any = TransformerModel.build_model(
        arguments, types.SimpleNamespace(source_dictionary=words, target_dictionary=words)
    )
    weights = read(setup.checkpoint)
    embedding = weights["target_embedding.weight"].copy()
    embedding[THEIRS] = embedding[: len(THEIRS)].copy()
    arrays = dict(fairseq_layers(weights))
    arrays |= {f"{side}.embed_tokens.weight": embedding for side in ("encoder", "decoder")}
    arrays["decoder.output_projection.weight"] = embedding
    model.load_state_dict(
        {**model.state_dict(), **{name: torch.from_numpy(array) for name, array in arrays.items()}}
    )
    for layer in model.encoder.layers:
        # Its call of PyTorch's fused layer fails with a PyTorch newer than 1.13.
        layer.load_to_BT = False
    table = np.concatenate(
        [np.zeros((words.pad() + 1, setup.width), np.float32), sinusoids(POSITIONS, setup.width)]
    )
    for side in (model.encoder, model.decoder):
        side.embed_positions.weights = torch.from_numpy(table)
    model.eval()
    model.make_generation_fast_()
    return model


if __name__ == "__main__":
    serve(build, ("float32",), divided=True)
