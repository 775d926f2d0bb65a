"""GNMT against its paper's equations, in loops over time and layers, and published figures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from table2_models import built
from torch import Tensor

from nmt_cli.annexes.table2.gnmt import GNMT
from nmt_cli.annexes.table2.recurrent import LSTM
from nmt_cli.annexes.table2.settings import GNMTConfig


def small_model(**fields: Any) -> Any:
    return built(
        "gnmt", **{"num_layers": 4, "d_model": 6, "dropout": 0.0, "init_range": 0.5, **fields}
    )


def lstm(layer: LSTM, inputs: list[Tensor]) -> list[Tensor]:
    """An LSTM over a sentence, position by position."""
    weight_x, weight_m, bias_x, bias_m = layer.cells.parameters()
    m = c = torch.zeros(layer.cells.hidden_size)
    outputs = []
    for x in inputs:
        i, f, g, o = (weight_x @ x + bias_x + weight_m @ m + bias_m).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        m = o.sigmoid() * c.tanh()
        outputs.append(m)
    return outputs


@torch.no_grad()
def reference(model: GNMT, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
    """The decoder's output and attention weights for one sentence, by section 3 and Figure 1."""
    x = [model.source_embedding.weight[word] for word in source]
    from_right = lstm(model.from_right, x[::-1])[::-1]
    x = [torch.cat(pair) for pair in zip(lstm(model.from_left, x), from_right, strict=True)]
    for number, layer in enumerate(model.encoder, start=2):
        m = lstm(layer, x)
        x = [m[t] + x[t] if number >= 3 else m[t] for t in range(len(x))]

    y = bottom = lstm(model.bottom, [model.target_embedding.weight[word] for word in target])
    weights, contexts = [], []
    for i in range(len(target)):
        past = bottom[i - 1] if i else torch.zeros_like(bottom[0])
        hidden = [model.attention.query.weight @ past + model.attention.key(x_t) for x_t in x]
        p = torch.stack([model.attention.score.weight[0] @ h.tanh() for h in hidden]).softmax(0)
        weights.append(p)
        contexts.append(sum(p[t] * x[t] for t in range(len(x))))
    for number, layer in enumerate(model.decoder, start=2):
        m = lstm(layer, [torch.cat([y[i], contexts[i]]) for i in range(len(y))])
        y = [m[i] + y[i] if number >= 3 else m[i] for i in range(len(y))]
    return torch.stack(y), torch.stack(weights)


def test_the_equations_of_the_paper() -> None:
    model = small_model()
    source, target = [5, 6, 7, 8, 3], [2, 10, 11, 12]
    batch = torch.tensor([source, [9, 3, 0, 0, 0]]), torch.tensor([target, [2, 13, 0, 0]])
    logits = model.decoder_output(*batch)
    weights = model.attention_weights(*(side[:1] for side in batch))
    expected = reference(model, source, target)
    torch.testing.assert_close((logits[0], weights["cross"][0, 0, 0]), expected)
    torch.testing.assert_close(logits[1, :2], reference(model, [9, 3], [2, 13])[0])


def test_parameters_of_the_paper_s_model() -> None:
    """278 million, by Shazeer et al. (2017), Table 2, for 32,000 word pieces."""
    model = small_model(vocabulary=32_000, device="meta", **vars(GNMTConfig()))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(278e6, rel=0.01)


def test_all_weights_start_uniform() -> None:
    weights = torch.cat(
        [p.flatten() for p in small_model(d_model=64, init_range=0.04).parameters()]
    ).abs()
    assert weights.max() <= 0.04
    assert weights.mean().item() == pytest.approx(0.02, rel=0.01)


def test_dropout_is_on_the_inputs_of_layers_and_on_the_output() -> None:
    model = small_model(num_layers=3, dropout=0.5)
    widths: list[int] = []
    model.dropout.register_forward_pre_hook(lambda _, inputs: widths.append(inputs[0].size(-1)))
    source, target = torch.tensor([[5, 6, 3]]), torch.tensor([[2, 10]])
    dropped = model.decoder_output(source, target)
    assert widths == [6, 12, 6, 6, 12, 12, 6]
    assert (dropped == 0).any()
    assert not (model.eval().decoder_output(source, target) == 0).any()
