"""Figure 1: the encoder-decoder, against `torch.nn.Transformer` holding the same weights.

PyTorch's has biases in its projections (zero here), a norm after each stack that the paper lacks
(left out here for post-norm), and neither embeddings nor positions (made here by their formulas).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

D, HEADS, LAYERS = 16, 4, 2
SOURCE = torch.tensor([[5, 9, 30, 17, 8, 3], [12, 6, 3, 0, 0, 0], [39, 4, 21, 3, 0, 0]])
TARGET = torch.tensor([[2, 7, 33, 4, 25], [2, 11, 0, 0, 0], [2, 38, 5, 9, 0]])
OTHERS_NAMES = {
    "around_self_attention.norm": "norm1",
    "around_cross_attention.norm": "norm2",
    "around_feed_forward.norm": "norm3",
    "feed_forward.inner": "linear1",
    "feed_forward.outer": "linear2",
}


def counterpart(model: nn.Module, pre_norm: bool) -> nn.Transformer:
    """PyTorch's Transformer with the weights of `model`."""
    layer: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": pre_norm}
    final = [nn.LayerNorm(D) if pre_norm else None for _ in range(2)]
    encoder_layer, decoder_layer = (
        kind(D, HEADS, 32, **layer)
        for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    )
    reference = nn.Transformer(
        D,
        HEADS,
        batch_first=True,
        custom_encoder=nn.TransformerEncoder(
            encoder_layer, LAYERS, final[0], enable_nested_tensor=False
        ),
        custom_decoder=nn.TransformerDecoder(decoder_layer, LAYERS, final[1]),
    )
    state = dict(twins(model, reference))
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.zero_()
        for place, value in state.values():
            place.copy_(value)
    return reference.train()


def twins(
    model: nn.Module, reference: nn.Transformer
) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """The name of each parameter except the embeddings, its counterpart in PyTorch, and itself."""
    stacks = {"encoder": reference.encoder, "decoder": reference.decoder}
    for name, parameter in model.named_parameters():
        stack, _, rest = name.partition(".")
        if stack in ("encoder_norm", "decoder_norm"):
            yield name, (getattr(stacks[stack[:7]].norm, rest), parameter)
        elif stack in stacks:
            number, _, inside = rest.partition(".")
            yield name, (twin_in_layer(stacks[stack].layers[int(number)], inside), parameter)


def twin_in_layer(layer: nn.Module, name: str) -> Tensor:
    owner, _, leaf = name.rpartition(".")
    if "attention" in owner and leaf == "weight" and ".w_" in name:
        attention, _, matrix = owner.partition(".")
        module = layer.self_attn if attention == "self_attention" else layer.multihead_attn
        if matrix == "w_o":
            return module.out_proj.weight
        rows = {"w_q": 0, "w_k": 1, "w_v": 2}[matrix]
        return module.in_proj_weight[rows * D : (rows + 1) * D]
    reference_name = OTHERS_NAMES[owner]
    if reference_name == "norm3" and not hasattr(layer, "norm3"):
        reference_name = "norm2"  # an encoder layer has two sub-layers
    return getattr(layer.get_submodule(reference_name), leaf)


def embedded(weight: Tensor, ids: Tensor) -> Tensor:
    """Sections 3.4 and 3.5."""
    angle = [[t / 10000 ** (2 * (i // 2) / D) for i in range(D)] for t in range(ids.size(1))]
    positions = [[(math.cos if i % 2 else math.sin)(a) for i, a in enumerate(row)] for row in angle]
    return F.embedding(ids, weight) * math.sqrt(D) + torch.tensor(positions)


def logits_of(reference: nn.Transformer, weight: Tensor) -> Tensor:
    length = TARGET.size(1)
    features = reference(
        embedded(weight, SOURCE),
        embedded(weight, TARGET),
        tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
        src_key_padding_mask=SOURCE == 0,
        memory_key_padding_mask=SOURCE == 0,
    )
    return features @ weight.T


def loss_of(logits: Tensor) -> Tensor:
    """A scalar whose gradients all differ, over real positions only."""
    return (
        (logits[TARGET != 0].log_softmax(-1) * torch.linspace(-1, 2, logits.size(-1)))
        .square()
        .sum()
    )


@pytest.fixture(params=["post", "pre"])
def pair(
    request: pytest.FixtureRequest, transformer: Callable[..., Any]
) -> tuple[Any, nn.Transformer]:
    model = transformer(
        norm=request.param, num_layers=LAYERS, d_model=D, num_heads=HEADS, d_ff=32, noise=0.2
    ).train()
    return model, counterpart(model, request.param == "pre")


def test_every_parameter_has_a_counterpart(pair: tuple[Any, nn.Transformer]) -> None:
    """No weight of PyTorch's model is left at zero, except the biases of its projections."""
    our_model, reference = pair
    count = sum(p.numel() for p in our_model.parameters()) - our_model.output_weight.numel()
    biases = sum(
        p.numel() for name, p in reference.named_parameters() if "attn" in name and "bias" in name
    )
    assert len(list(twins(our_model, reference))) == len(list(our_model.parameters())) - 1
    assert sum(p.numel() for p in reference.parameters()) - biases == count


def test_outputs_agree(pair: tuple[Any, nn.Transformer]) -> None:
    our_model, reference = pair
    real = TARGET != 0
    torch.testing.assert_close(
        our_model(SOURCE, TARGET)[real],
        logits_of(reference, our_model.output_weight)[real],
        rtol=1e-5,
        atol=1e-5,
    )


def test_gradients_agree(pair: tuple[Any, nn.Transformer]) -> None:
    our_model, reference = pair
    loss_of(our_model(SOURCE, TARGET)).backward()
    weight = our_model.output_weight.detach().clone().requires_grad_()
    loss_of(logits_of(reference, weight)).backward()
    expected = {name: place for name, (place, _) in twins(our_model, gradients_of(reference))}
    expected["target_embedding.weight"] = weight.grad
    for name, parameter in our_model.named_parameters():
        largest = expected[name].abs().max().item()
        assert largest > 0
        torch.testing.assert_close(
            parameter.grad,
            expected[name],
            rtol=0,
            atol=1e-5 * largest,
            msg=lambda m, n=name: f"{n}: {m}",
        )


def gradients_of(module: nn.Transformer) -> nn.Transformer:
    """The module with its gradients in place of its weights."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.grad)
    return module
