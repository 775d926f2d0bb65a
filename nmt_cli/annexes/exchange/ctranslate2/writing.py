"""CTranslate2: a Transformer as a `TransformerSpec`, whose layers compute the same as ours.

Attention without biases and tables of positions are part of that specification, so the weights go
as they are. Queries, keys and values of the same input are one matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from ctranslate2.specs.model_spec import LayerSpec, index_spec
from numpy.typing import NDArray
from torch import nn

from nmt_cli.annexes.exchange.ctranslate2.engine import (
    POSITIONS,
    CTranslate2Engine,
    load_engine,
    tokens_of,
)
from nmt_cli.annexes.exchange.export.comparison import Comparison, expressible
from nmt_cli.decoding.engine import Request
from nmt_cli.decoding.options import SearchSettings, TranslateOptions
from nmt_cli.interfaces import BOS, EOS, SPECIAL_SYMBOLS, UNK
from nmt_cli.models.transformer import Transformer
from nmt_cli.task import Task

_ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU, "swish": Activation.SWISH}
# For each product or norm of a layer in CTranslate2, our modules, whose outputs stand side by side.
_MODULES = {
    "self_attention/linear_0": ["self_attention.w_q", "self_attention.w_k", "self_attention.w_v"],
    "self_attention/linear_1": ["self_attention.w_o"],
    "self_attention/layer_norm": ["around_self_attention.norm"],
    "attention/linear_0": ["cross_attention.w_q"],
    "attention/linear_1": ["cross_attention.w_k", "cross_attention.w_v"],
    "attention/linear_2": ["cross_attention.w_o"],
    "attention/layer_norm": ["around_cross_attention.norm"],
    "ffn/linear_0": ["feed_forward.inner"],
    "ffn/linear_0_noact": ["feed_forward.factor"],
    "ffn/linear_1": ["feed_forward.outer"],
    "ffn/layer_norm": ["around_feed_forward.norm"],
}


def export(
    model: nn.Module,
    task: Task,
    samples: Sequence[str],
    folder: Path,
    quantization: str = "float32",
) -> Sequence[str]:
    """See `formats.py`.

    The model is compared in float32. Then its weights are written in `quantization`, whose rounding
    has no bound.
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
        equal = 0
        for output, float32_output in zip(outputs, comparison.outputs, strict=True):
            equal += output == float32_output
        report.append(
            f"greedy outputs with weights in {quantization}: {equal} of {len(outputs)} equal"
        )
    return report


def _engine(folder: Path, task: Task) -> CTranslate2Engine:
    return load_engine(folder, task, None, "float32", threads=1, scores=False)


def _greedy(engine: CTranslate2Engine, comparison: Comparison) -> list[list[int]]:
    batch = []
    for ids, limit in zip(comparison.sources, comparison.limits, strict=True):
        batch.append(Request(ids, limit))
    (outputs,) = engine.search([batch], SearchSettings(beam=1), TranslateOptions())
    return [best.tokens for (best,) in outputs]


def write(model: Transformer, task: Task, folder: Path, quantization: str = "float32") -> None:
    """Write the model and its vocabularies to the existing directory `folder`."""
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
    _set_layers(spec.encoder.layer, model.encoder)
    _set_layers(spec.decoder.layer, model.decoder)
    if config.norm == "pre":
        _set(spec.encoder.layer_norm, model.encoder_norm)
        _set(spec.decoder.layer_norm, model.decoder_norm)
    spec.config.add_source_eos = True
    spec.config.unk_token = SPECIAL_SYMBOLS[UNK]
    spec.config.bos_token = SPECIAL_SYMBOLS[BOS]
    spec.config.eos_token = SPECIAL_SYMBOLS[EOS]
    spec.config.decoder_start_token = SPECIAL_SYMBOLS[BOS]
    spec.config.layer_norm_epsilon = model.encoder[0].around_feed_forward.norm.eps
    return spec


def _set_layers(specs: Sequence[LayerSpec], layers: Iterable[nn.Module]) -> None:
    for spec, layer in zip(specs, layers, strict=True):
        modules = dict(layer.named_modules())
        for name, our_names in _MODULES.items():
            parts = [modules[our_name] for our_name in our_names if our_name in modules]
            if parts:  # an encoder has no cross-attention
                _set(index_spec(spec, name), *parts)


def _set(spec: LayerSpec, *modules: Any) -> None:
    """Set a normalisation, or a product with the outputs of `modules` side by side."""
    weight = np.concatenate([_array(module.weight) for module in modules])
    bias = None
    if modules[0].bias is not None:
        bias = np.concatenate([_array(module.bias) for module in modules])
    if isinstance(modules[0], nn.LayerNorm):
        spec.gamma = weight
        spec.beta = bias
    else:
        spec.weight = weight
        if bias is not None:
            spec.bias = bias


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    return tensor.detach().float().contiguous().numpy()
