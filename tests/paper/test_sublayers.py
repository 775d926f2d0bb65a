"""Sections 3.1, 3.3 and 5.4: layers, feed-forward network, residual connections, norms, dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt_cli.layers.attention import MultiHeadAttention
from nmt_cli.layers.dropout import Dropout
from nmt_cli.layers.sublayer import FeedForward, Residual
from nmt_cli.models.settings import TransformerConfig

SOURCE, TARGET = torch.tensor([[5, 6, 7, 3]]), torch.tensor([[2, 8, 9]])


def test_equation_2() -> None:
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position."""
    torch.manual_seed(0)
    network = FeedForward(6, 10, dropout=0.0)
    x = torch.randn(2, 5, 6)
    for b, t in ((0, 0), (1, 4)):
        inner = network.inner.weight @ x[b, t] + network.inner.bias
        expected = network.outer.weight @ inner.clamp(min=0) + network.outer.bias
        torch.testing.assert_close(network(x)[b, t], expected)


def test_the_norm_comes_after_the_sum() -> None:
    """Section 3.1: the output of each sub-layer is LayerNorm(x + Sublayer(x))."""
    torch.manual_seed(0)
    around = Residual(6, dropout=0.0, pre_norm=False)
    nn.init.normal_(around.norm.weight)
    x = torch.randn(2, 5, 6)
    summed = x + x.sin()
    centred = summed - summed.mean(-1, keepdim=True)
    normalised = centred / (summed.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(
        around(x, torch.sin), normalised * around.norm.weight + around.norm.bias
    )


def test_base_model_is_post_norm_without_a_final_norm(transformer: Callable[..., Any]) -> None:
    assert TransformerConfig().norm == "post"
    model = transformer(num_layers=3)
    norms = [name for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) == 3 * 2 + 3 * 3  # one around each sub-layer


class Watch:
    """The tensors that enter dropout, leave a sub-layer or enter a stack, in one training pass."""

    def __init__(self, model: nn.Module) -> None:
        self.dropped: list[Tensor] = []
        self.sublayers: list[Tensor] = []
        for module in model.modules():
            if isinstance(module, Dropout) and module.rate > 0:
                module.register_forward_hook(lambda m, inputs, out: self.dropped.append(inputs[0]))
            if isinstance(module, (MultiHeadAttention, FeedForward)):
                module.register_forward_hook(lambda m, inputs, out: self.sublayers.append(out))
        assert not any(isinstance(module, nn.Dropout) for module in model.modules())


def test_dropout_is_on_sublayer_outputs_and_on_embeddings_with_positions(
    transformer: Callable[..., Any],
) -> None:
    """Section 5.4: N layers have 2 N + 3 N such places, and there are two stacks."""
    model = transformer(num_layers=3, dropout=0.1).train()
    watch = Watch(model)
    model(SOURCE, TARGET)
    assert len(watch.sublayers) == 3 * 2 + 3 * 3
    outputs = {id(out) for out in watch.sublayers}
    others = [x for x in watch.dropped if id(x) not in outputs]
    assert len(watch.dropped) == len(watch.sublayers) + len(others)
    # The other rows are zeros.
    others = [x[: ids.size(1)] for x, ids in zip(others, (SOURCE, TARGET), strict=True)]
    plain = [4.0 * model.output_weight[ids[0]] for ids in (SOURCE, TARGET)]
    for entered, embedded in zip(others, plain, strict=True):
        assert not torch.allclose(entered, embedded)  # positions are in it
        assert (entered - embedded).abs().max() <= 1.0 + 1e-5


def test_dropout_comes_before_the_sum_and_the_norm() -> None:
    """Section 5.4: before the output is added to the sub-layer input and normalised."""
    torch.manual_seed(0)
    around = Residual(64, dropout=0.5, pre_norm=False).train()
    x = torch.arange(64.0).expand(1, 4, 64)
    changed = around(x, lambda y: torch.full_like(y, 1000.0))
    not_dropped = changed > 0  # 2000 was added to about half of the places, 0 to the others
    for row, mask in zip(changed[0], not_dropped[0], strict=True):
        torch.testing.assert_close(row, F.layer_norm(x[0, 0] + 2000.0 * mask, (64,)))
    assert 0.3 < not_dropped.float().mean() < 0.7
