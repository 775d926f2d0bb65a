"""Checkpoints of tiny models with random weights: they translate into nonsense, but always the same nonsense.

And, for tests without a GPU, the kernel of attention over packed sentences.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from nmt_cli import checkpoint, registry
from nmt_cli.checkpoint import Contents
from nmt_cli.export.writing import write_export
from nmt_cli.interfaces import EOS
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask

MODEL = {"name": "transformer", "num_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2}


@pytest.fixture(scope="session")
def make_checkpoint() -> Callable[..., Path]:
    """Writes a checkpoint of another model for each seed; the vocabulary has one entry for each letter of `letters`.

    `model` are settings of the Transformer; `separate` vocabularies are of the same letters; `ends` lets outputs end
    before their limit; `noise` is added to biases and layer norms, which start as zeros and ones.
    """

    def make(
        folder: Path,
        seed: int = 12,
        letters: str = "abcdefgh",
        step: int = 1,
        *,
        model: Mapping[str, Any] | None = None,
        attention: str = "full",
        separate: bool = False,
        normalization: str = "nmt_nfkc",
        ends: bool = False,
        noise: float = 0.0,
    ) -> Path:
        registry.discover()
        size = 5 + len(letters)
        settings = {"vocab_size": size, "separate_vocabularies": separate, "normalization": normalization}
        task = TranslationTask(TranslationConfig("en", "de", **settings))
        task.learn([(letters, letters[::-1])])
        vocabulary = (task.source_vocabulary_size, task.target_vocabulary_size, task.shared_vocabulary)
        sections = {"model": {**MODEL, **(model or {})}, "attention": {"name": attention}}
        contents = Contents(sections, *vocabulary, step, "run")
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(seed)
            built = checkpoint.build_model(contents, str(folder))
            # Decided opinions, and by default none about the end: outputs that are not empty.
            built.get_parameter("target_embedding.weight").mul_(3)[EOS] *= ends
            for vector in (parameter for parameter in built.parameters() if parameter.dim() == 1):
                vector.add_(noise * torch.randn_like(vector))
        checkpoint.save(folder, contents, checkpoint.weights_of(built), task)
        return folder

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that all tests read and none changes."""
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint")


@pytest.fixture(scope="session")
def tiny_export(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint for CTranslate2; all tests read it and none changes it."""
    out = tmp_path_factory.mktemp("export") / "ctranslate2"
    write_export(tiny_checkpoint, "ctranslate2", out)
    return out


def sentences_of(starts_q: Tensor, starts_k: Tensor, window: Sequence[int]) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield the rows of the queries and of the keys of each sentence, and which keys each query may see."""
    left, right = window
    for (q, q_end), (k, k_end) in zip(*(itertools.pairwise(s.tolist()) for s in (starts_q, starts_k)), strict=True):
        distance = torch.arange(k_end - k) - torch.arange(q_end - q)[:, None]
        yield slice(q, q_end), slice(k, k_end), ((distance >= -left) | (left < 0)) & ((distance <= right) | (right < 0))


def weights_of(query: Tensor, key: Tensor, allowed: Tensor) -> Tensor:
    """Equation 1 without the values: [H, T, S]."""
    scores = torch.einsum("qhd,khd->hqk", query, key) * query.size(-1) ** -0.5
    return scores.masked_fill(~allowed, -torch.inf).softmax(-1)


@pytest.fixture
def variable_length_kernel(_variable_length_kernel: Sequence[Any]) -> Iterator[None]:
    """Lets PyTorch's attention for sentences of different lengths, which needs a GPU, also run on the CPU."""
    with contextlib.ExitStack() as enabled:
        for operation in _variable_length_kernel:
            enabled.enter_context(operation.set_kernel_enabled("cpu", enabled=True))
        yield


@pytest.fixture(scope="session")
def _variable_length_kernel() -> Iterator[Sequence[Any]]:
    """Register the kernels, and disable them until a test needs them."""

    @varlen._varlen_attn.register_kernel("cpu")  # type: ignore[misc, attr-defined]
    def forward(q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, starts_k: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        max_q, max_k, _, _, window = rest[:5]
        assert max_q >= starts_q.diff().max()
        assert max_k >= starts_k.diff().max()
        output = torch.empty_like(q)
        for queries, keys, allowed in sentences_of(starts_q, starts_k, window):
            output[queries] = torch.einsum("hqk,khd->qhd", weights_of(q[queries], k[keys], allowed), v[keys])
        return output, q.new_zeros(q.size(1), len(q), dtype=torch.float32), torch.zeros(2, dtype=torch.uint64)

    @varlen._varlen_attn_backward.register_kernel("cpu")  # type: ignore[misc, attr-defined]
    def backward(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *rest: Any) -> Any:
        starts_q, starts_k, _, _, _, _, scale, window = rest[:8]
        assert scale is None
        dq, dk, dv = (torch.empty_like(each) for each in (q, k, v))
        for queries, keys, allowed in sentences_of(starts_q, starts_k, window):
            weights = weights_of(q[queries], k[keys], allowed)
            dv[keys] = torch.einsum("hqk,qhd->khd", weights, gradient[queries])
            d_weights = torch.einsum("qhd,khd->hqk", gradient[queries], v[keys])
            d_scores = weights * (d_weights - (d_weights * weights).sum(-1, keepdim=True)) * q.size(-1) ** -0.5
            dq[queries] = torch.einsum("hqk,khd->qhd", d_scores, k[keys])
            dk[keys] = torch.einsum("hqk,qhd->khd", d_scores, q[queries])
        return dq, dk, dv

    operations: Sequence[Any] = (varlen._varlen_attn, varlen._varlen_attn_backward)
    with contextlib.ExitStack() as disabled:
        for operation in operations:
            disabled.enter_context(operation.set_kernel_enabled("cpu", enabled=False))
        yield operations
