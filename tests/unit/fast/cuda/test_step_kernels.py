"""The kernels of a step, in Triton's interpreter, against PyTorch in float32."""

from __future__ import annotations

import os
import random
from itertools import chain
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from graph_searches import Again, requested

from nmt_cli import registry
from nmt_cli.annexes.later.settings import RotaryAttentionConfig
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.options import SearchSettings
from nmt_cli.fast.cuda import checks, fixed_search, graph_search
from nmt_cli.fast.cuda.device import Fast
from nmt_cli.interfaces import EOS, PAD
from nmt_cli.layers.settings import FullAttentionConfig
from nmt_cli.models.settings import TransformerConfig
from nmt_cli.models.transformer import Transformer

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="make test-kernels: interprets kernels"
)


SEARCHES = int(os.environ.get("SEARCHES", "8"))
CPU = torch.device("cpu")


def kernels() -> Any:
    """The module, which needs Triton."""
    module = checks.kernels_of_step(CPU, torch.float32, 4, 16, 32)
    assert module is not None
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("V", "k"), [(5000, 5), (70, 2), (5, 7)])
def test_the_best_tokens_of_a_row(V: int, k: int, dtype: torch.dtype) -> None:
    """In one block and in several. None of three symbols is chosen, nor the last two tokens.

    Of equal ones, the first are chosen.
    """
    logits = 3 * torch.randn(3, V, generator=torch.Generator().manual_seed(V))
    logits[0] = logits[0].round()
    logits[1] -= 1e4
    logits = logits.to(dtype)
    log_probabilities = logits.log_softmax(1, dtype=torch.float32)
    expected = log_probabilities.clone()
    expected[:, [0, 1, 3, V - 2, V - 1]] = -torch.inf
    values, columns = expected.sort(dim=1, descending=True, stable=True)
    values, columns = values[:, :k], columns[:, :k]
    scores, tokens = kernels().best_tokens(logits, k, torch.tensor([0b1011]), V - 2)
    torch.testing.assert_close(scores[:, : values.size(1)], values, rtol=1e-6, atol=1e-6)
    possible = ~values.isneginf()
    assert torch.equal(tokens[:, : values.size(1)][possible], columns[possible])
    assert scores[:, values.size(1) :].isneginf().all()


def test_the_first_of_equal_tokens_stay() -> None:
    """Those that a better one comes after, too."""
    logits = torch.zeros(1, 9000)
    logits[0, [10, 2100, 4100, 4200]] = torch.tensor([1.0, 1.0, 1.0, 2.0])
    _, tokens = kernels().best_tokens(logits, 3, torch.tensor([0]), 9000)
    assert tokens.tolist() == [[4200, 10, 2100]]


def test_sentences_have_their_own_symbols() -> None:
    logits = torch.arange(6.0).flip(0).repeat(4, 1)
    _, tokens = kernels().best_tokens(logits, 2, torch.tensor([0b001, 0b110]), 6)
    assert tokens.tolist() == [[1, 2], [1, 2], [0, 3], [0, 3]]


def test_nan_and_great_logits() -> None:
    """A row without a token that has a probability is NaN, as a softmax of it would be."""
    logits = torch.zeros(4, 8)
    logits[0, 5] = torch.nan
    logits[1, 6] = 1e30
    logits[2] = -torch.inf
    logits[3, 4] = torch.inf
    scores, tokens = kernels().best_tokens(logits, 2, torch.tensor([0]), 8)
    assert scores[[0, 2, 3], 0].isnan().all()
    assert (scores[1, 0], tokens[1, 0]) == (0, 6)
    assert ((tokens >= 0) & (tokens < 8)).all()


@pytest.mark.parametrize(("W", "d_k", "d_v", "newest"), [(4, 32, 16, True), (16, 16, 16, False)])
def test_attention_of_a_step(W: int, d_k: int, d_v: int, newest: bool) -> None:
    torch.manual_seed(0)
    A, H, C = 2, 2, 70
    widths = [H * d_k, H * d_k, H * d_v]
    query, key, value = (
        part.view(A * W, H, -1) for part in torch.randn(A * W, sum(widths)).split(widths, 1)
    )
    cache = torch.randn(A, H, 90, d_k + d_v)
    mask = torch.zeros(A, W if newest else 1, C).masked_fill_(torch.rand(C) < 0.5, -torch.inf)
    mask[:, :, 0] = 0.0
    positions = torch.tensor([2, 5])
    columns_of_sentences = positions[:, None] * W + torch.arange(W)
    expected_cache = cache.clone()
    if newest:
        new = torch.cat([key, value], 2).view(A, W, H, -1).transpose(1, 2)
        for sentence, columns in enumerate(columns_of_sentences):
            mask[sentence][:, columns] = torch.full((W, W), -torch.inf).fill_diagonal_(0.0)
            expected_cache[sentence][:, columns] = new[sentence]
    expected = F.scaled_dot_product_attention(
        query.view(A, W, H, d_k).transpose(1, 2),
        *expected_cache[:, :, :C].tensor_split((d_k,), 3),
        mask[:, None],
    )
    cache[:, :, :C].masked_fill_(mask.amax(1)[:, None, :, None] != 0, torch.nan)  # is not read
    new_columns = (key, value, positions.repeat_interleave(W)[:, None]) if newest else None
    heads = kernels().attend(query, *cache.tensor_split((d_k,), 3), mask, new_columns)
    by_row = expected.transpose(1, 2).flatten(0, 1)
    torch.testing.assert_close(heads, by_row, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(SEARCHES))
def test_a_search_with_kernels(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds what the ordinary search finds, with places that are refilled."""
    monkeypatch.setattr(fixed_search, "captured", Again)
    monkeypatch.setattr(graph_search, "FEWEST", 1)
    registry.discover()
    torch.manual_seed(seed)
    numbers = random.Random(seed)
    V = numbers.choice([9, 40])
    attention = FullAttentionConfig() if seed % 8 > 3 else RotaryAttentionConfig()
    # The kernel of attention takes no heads of 8 numbers.
    config = TransformerConfig(num_layers=1, d_model=32, d_ff=32, num_heads=4 if seed % 4 else 2)
    words = {"source_vocabulary_size": V, "target_vocabulary_size": V, "shared_vocabulary": True}
    model = Transformer(config, attention=attention, **words)
    with torch.no_grad():
        model.target_embedding.weight[EOS] *= 2
        model.decoder[-1].around_feed_forward.norm.weight.normal_()
    fast = Fast(CPU)
    decodable: Any = fast.decodable(model.eval(), "float32")
    beam = numbers.randint(1, 4)
    options = SearchSettings(
        beam,
        nbest=numbers.randint(1, beam),
        min_length=numbers.randint(0, 2),
        never_generated=numbers.randint(0, 2),
        unknown=seed % 2 == 0,
        early_termination=seed % 3 > 0,
        exact_stopping=seed % 3 == 1,
    )
    batches = []
    for count in (2, numbers.randint(1, 2)):  # in two places
        lengths = [numbers.randint(1, 6) for _ in range(count)]
        source = torch.full((count, max(lengths)), PAD)
        for row, length in zip(source, lengths, strict=True):
            row[:length] = torch.tensor([numbers.randrange(EOS + 1, V) for _ in range(length)])
            row[length - 1] = EOS
        batches.append((source, [numbers.randint(0, 5) for _ in lengths], options, None))
    outputs = chain.from_iterable(fast.search(decodable, beam_search)(requested(batches)))
    expected = chain.from_iterable(beam_search(decodable, *batch) for batch in batches)
    for mine, its in zip(outputs, expected, strict=True):
        assert [output.tokens for output in mine] == [output.tokens for output in its]
        scores = [[output.score for output in outputs] for outputs in (mine, its)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_kernel_that_computes_something_else(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is found out before it is used. The interpreter has no products in bfloat16."""
    module = kernels()
    for sizes in ((), (4, 32, 16)):
        checks.kernels_of_step.cache_clear()
        assert checks.kernels_of_step(CPU, dtype, *sizes) == module
    best, first = module.best_tokens, torch.ones(2, dtype=torch.long)
    monkeypatch.setattr(module, "attend", lambda query, *_: query.new_zeros(4, 1, 16))
    monkeypatch.setattr(module, "best_tokens", lambda logits, *_: best(logits, 5, first, 2000))
    for sizes in ((), (4, 32, 16)):
        checks.kernels_of_step.cache_clear()
        assert checks.kernels_of_step(CPU, dtype, *sizes) is None
        assert "without a kernel: its results differ from PyTorch's" in capsys.readouterr().err
    checks.kernels_of_step.cache_clear()


def test_where_there_is_no_kernel_of_attention() -> None:
    for sizes in ((17, 16, 16), (4, 48, 64), (4, 16, 8), (4, 256, 16)):
        assert checks.kernels_of_step(CPU, torch.float32, *sizes) is None
