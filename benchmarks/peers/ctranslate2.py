"""CTranslate2 at its best: a worker of one thread for each core, and batches that give every worker an equal part."""

from __future__ import annotations

import tempfile
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec

from benchmarks.peers.serve import Ids, Setup, System, serve
from benchmarks.peers.weights import Weights, read, sinusoids

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
POSITIONS = 1024


def build(setup: Setup) -> System:
    words = [*SPECIAL, *(f"{number:06}" for number in range(len(SPECIAL), setup.vocabulary))]
    numbers = {word: number for number, word in enumerate(words)}
    with tempfile.TemporaryDirectory() as folder:
        spec = converted(setup, read(setup.checkpoint))
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
        spec.config.add_source_eos = True
        spec.validate()
        spec.save(folder)
        translator = ctranslate2.Translator(
            folder, device="cpu", compute_type=setup.dtype, inter_threads=setup.cores, intra_threads=1
        )

    def translate(sources: Ids) -> Ids:
        results = translator.translate_batch(
            [[words[number] for number in source] for source in sources],
            beam_size=setup.beam,
            length_penalty=setup.alpha,
            min_decoding_length=setup.steps,
            max_decoding_length=setup.steps,
            max_batch_size=-(-len(sources) // setup.cores),
        )
        return [[numbers[word] for word in result.hypotheses[0]] for result in results]

    return System(ctranslate2.__version__, translate)


def converted(setup: Setup, weights: Weights) -> TransformerSpec:
    """Return the model in CTranslate2's form."""
    spec = TransformerSpec.from_config(setup.layers, setup.heads, pre_norm=False)
    embedding = weights["target_embedding.weight"]
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        stack.position_encodings.encodings = sinusoids(POSITIONS, setup.width)
        for number, layer in enumerate(stack.layer):
            own = {
                name[len(f"{side}.{number}.") :]: array
                for name, array in weights.items()
                if name.startswith(f"{side}.{number}.")
            }
            attention(layer.self_attention, own, "self_attention", ["qkv", "o"])
            if side == "decoder":
                attention(layer.attention, own, "cross_attention", ["q", "kv", "o"])
            norm(layer.ffn.layer_norm, own, "feed_forward")
            for linear, name in ((layer.ffn.linear_0, "inner"), (layer.ffn.linear_1, "outer")):
                linear.weight = own[f"feed_forward.{name}.weight"]
                linear.bias = own[f"feed_forward.{name}.bias"]
    return spec


def attention(spec: Any, own: Weights, name: str, products: list[str]) -> None:
    """Set an attention's products, each of which joins some of q, k, v and o, and the norm after it."""
    for linear, letters in zip(spec.linear, products, strict=True):
        linear.weight = np.concatenate([own[f"{name}.w_{letter}.weight"] for letter in letters])
    norm(spec.layer_norm, own, name)


def norm(spec: Any, own: Weights, name: str) -> None:
    """Set the layer norm around the sub-layer `name`."""
    spec.gamma, spec.beta = own[f"around_{name}.norm.weight"], own[f"around_{name}.norm.bias"]


if __name__ == "__main__":
    serve(build)
