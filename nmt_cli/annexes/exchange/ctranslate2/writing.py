"""CTranslate2: a Transformer as its `TransformerSpec`, whose layers compute what ours do.

Attention without biases and tables of positions are part of that specification, so the weights go as they are. Queries,
keys and values of the same input are one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import eq
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from numpy.typing import NDArray
from torch import nn

from nmt_cli.annexes.exchange.ctranslate2.engine import POSITIONS, CTranslate2Engine, load_engine, tokens_of
from nmt_cli.annexes.exchange.export.comparison import Comparison, expressible
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.interfaces import BOS, EOS, SPECIAL_SYMBOLS, UNK
from nmt_cli.models.transformer import DecoderLayer, EncoderLayer, Transformer
from nmt_cli.task import Task

_ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU, "swish": Activation.SWISH}


def export(
    model: nn.Module, task: Task, samples: Sequence[str], folder: Path, quantization: str = "float32"
) -> Sequence[str]:
    """See `formats.py`.

    The model is compared in float32. Then its weights are written in `quantization`, whose rounding has no bound.
    """
    transformer = expressible(model, "CTranslate2")
    write(transformer, task, folder)
    comparison = Comparison(transformer, task, samples, "CTranslate2")
    engine = _engine(folder, task)
    log_probabilities = engine.log_probabilities(comparison.sources, comparison.outputs)
    report = comparison.report(log_probabilities, _greedy(engine, comparison))
    if quantization != "float32":
        write(transformer, task, folder, quantization)
        outputs = _greedy(_engine(folder, task), comparison)
        equal = sum(map(eq, outputs, comparison.outputs))
        report.append(f"greedy outputs with weights in {quantization}: {equal} of {len(outputs)} equal")
    return report


def _engine(folder: Path, task: Task) -> CTranslate2Engine:
    return load_engine(folder, task, torch.device("cpu"), "float32", threads=1, scores=False)


def _greedy(engine: CTranslate2Engine, comparison: Comparison) -> list[list[int]]:
    requests = map(Request, comparison.sources, comparison.limits)
    (found,) = engine.search([[*requests]], SearchSettings(beam=1), TranslateOptions())
    return [best[0].tokens for best in found]


def write(model: Transformer, task: Task, folder: Path, quantization: str = "float32") -> None:
    """Write the model and its vocabularies to the existing directory `folder`, as CTranslate2 reads them."""
    spec = converted(model)
    source_tokens, target_tokens = tokens_of(task)
    spec.register_source_vocabulary(source_tokens)
    spec.register_target_vocabulary(target_tokens)
    spec.validate()
    spec.optimize(quantization)  # also: a matrix that is used three times is written once
    spec.save(str(folder))


def converted(model: Transformer) -> TransformerSpec:
    """Return the model in CTranslate2's form, without vocabularies."""
    config = model.config
    spec = TransformerSpec.from_config(
        (config.num_layers, config.decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=_ACTIVATIONS[config.activation],
        ffn_glu=config.gated_feed_forward,
    )
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_embedding.weight)
    spec.decoder.projection.weight = _array(model.output_weight)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)
    spec.encoder.position_encodings.encodings = _array(model.source_positions(0, POSITIONS))
    spec.decoder.position_encodings.encodings = _array(model.target_positions(0, POSITIONS))
    for part, layer in zip(spec.encoder.layer, model.encoder, strict=True):
        _set_layer(part, layer)
    for part, decoder_layer in zip(spec.decoder.layer, model.decoder, strict=True):
        _set_layer(part, decoder_layer)
        attention = decoder_layer.cross_attention
        _set_linear(part.attention.linear[0], attention.w_q)
        _set_linear(part.attention.linear[1], attention.w_k, attention.w_v)
        _set_linear(part.attention.linear[2], attention.w_o)
        _set_norm(part.attention.layer_norm, decoder_layer.around_cross_attention.norm)
    if config.norm == "pre":
        _set_norm(spec.encoder.layer_norm, model.encoder_norm)
        _set_norm(spec.decoder.layer_norm, model.decoder_norm)
    spec.config.add_source_eos = True
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (SPECIAL_SYMBOLS[i] for i in (UNK, BOS, EOS))
    spec.config.decoder_start_token = SPECIAL_SYMBOLS[BOS]
    spec.config.layer_norm_epsilon = model.encoder[0].around_feed_forward.norm.eps
    return spec


def _set_layer(part: Any, layer: EncoderLayer | DecoderLayer) -> None:
    """Set self-attention and the feed-forward network."""
    attention, network = layer.self_attention, layer.feed_forward
    _set_linear(part.self_attention.linear[0], attention.w_q, attention.w_k, attention.w_v)
    _set_linear(part.self_attention.linear[1], attention.w_o)
    _set_norm(part.self_attention.layer_norm, layer.around_self_attention.norm)
    _set_linear(part.ffn.linear_0, network.inner)
    if network.factor is not None:
        _set_linear(part.ffn.linear_0_noact, network.factor)
    _set_linear(part.ffn.linear_1, network.outer)
    _set_norm(part.ffn.layer_norm, layer.around_feed_forward.norm)


def _set_linear(part: Any, *layers: nn.Linear) -> None:
    """Set a product whose outputs are those of `layers`, side by side."""
    part.weight = np.concatenate([_array(layer.weight) for layer in layers])
    if layers[0].bias is not None:
        part.bias = np.concatenate([_array(layer.bias) for layer in layers])


def _set_norm(part: Any, norm: Any) -> None:
    part.gamma, part.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    return tensor.detach().float().contiguous().numpy()
