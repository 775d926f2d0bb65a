"""What an imported Transformer does differently from the paper's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli import registry
from nmt_cli.annexes.exchange.importing.settings import ImportedTransformerConfig
from nmt_cli.annexes.search.scoring import token_log_probabilities
from nmt_cli.data.batching import pad
from nmt_cli.fast import rows
from nmt_cli.fast.cuda.device import Fast
from nmt_cli.interfaces import BOS, EOS

SOURCES, TARGETS = [[5, 6, 7, 8], [9], []], [[4, 5], [6, 7, 8], [9]]


def small_model(**fields: Any) -> Any:
    registry.discover()
    torch.manual_seed(1)
    config = ImportedTransformerConfig(num_layers=2, d_model=16, d_ff=24, num_heads=2, **fields)
    attention = registry.find("attention", "full").config()
    sizes = {"source_vocabulary_size": 12, "target_vocabulary_size": 12, "shared_vocabulary": True}
    return registry.build(config, attention=attention, **sizes).eval()


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return model(pad([[*ids, EOS] for ids in SOURCES]), pad([[BOS, *ids] for ids in TARGETS]))


def test_an_output_matrix_of_its_own() -> None:
    model = small_model(separate_output=True)
    before = logits(model)
    with torch.no_grad():
        model.separate_output.mul_(2)
    torch.testing.assert_close(logits(model), 2 * before)


@pytest.mark.parametrize("source_end", [True, False])
def test_a_gpu_trains_it_in_bins_if_it_sees_all_of_the_source(source_end: bool) -> None:
    model = small_model(source_end=source_end)
    Fast(torch.device("cuda")).fit(model)
    assert rows.computes_rows(model)
    assert rows.takes_bins(model) is source_end


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_epsilon(norm: str) -> None:
    """In every norm, also of decoding: large ones make all sub-layers equal to their biases."""
    epsilon = 0.5
    model = small_model(norm=norm, norm_epsilon=epsilon)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            assert module.eps == epsilon
    frozen = model.decodable("float32")
    state = frozen.start(pad([[5, EOS]]))
    logits, _ = frozen.step(torch.tensor([BOS]), state)
    with torch.no_grad():
        expected = model(pad([[5, EOS]]), pad([[BOS]]))[:, 0].log_softmax(1)
    torch.testing.assert_close(logits, expected)
    assert not torch.allclose(
        expected,
        small_model(norm=norm)(pad([[5, EOS]]), pad([[BOS]]))[:, 0].log_softmax(1),
        atol=1e-3,
    )


def test_the_end_of_the_source_is_not_seen() -> None:
    """Another embedding of EOS changes nothing, except for an empty line.

    Decoding agrees with training.
    """
    model = small_model(source_end=False)
    before = logits(model)
    with torch.no_grad():
        model.target_embedding.weight[EOS] += 1
    changed = (logits(model) - before).abs()[..., [i for i in range(12) if i != EOS]].amax((1, 2))
    assert changed[0] == changed[1] == 0
    assert changed[2] > 0.01
    sources = pad([[*ids, EOS] for ids in SOURCES])
    decodable = model.decodable("float32")
    state = decodable.start(sources)
    scores = token_log_probabilities(
        [model], SOURCES, TARGETS, torch.device("cpu"), batch_tokens=100
    )
    tokens = torch.full((3,), BOS)
    for place in range(2):
        step_logits, state = decodable.step(tokens, state)
        tokens = torch.tensor([[*ids, EOS, EOS][place] for ids in TARGETS])
        for row, token in enumerate(tokens.tolist()):
            if place < len(scores[row]):
                assert step_logits[row, token].item() == pytest.approx(scores[row][place], abs=1e-5)
