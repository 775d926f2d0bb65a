"""The caches of decoding: which columns are seen and copied, and when unseen columns leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.annexes.later.settings import (
    AlibiAttentionConfig,
    RelativeAttentionConfig,
    RestrictedAttentionConfig,
    RotaryAttentionConfig,
)
from nmt_cli.fast import inference
from nmt_cli.fast.inference import FIRST_COLUMNS, FrozenTransformer, TransformerState, takes
from nmt_cli.interfaces import BOS
from nmt_cli.layers.attention import AttentionMask, FullAttention, MultiHeadAttention
from nmt_cli.layers.settings import FullAttentionConfig
from nmt_cli.models.transformer import Transformer

SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 3, 0, 0, 0], [10, 11, 12, 3, 0], [13, 3, 0, 0, 0]])
KERNELS = {
    "full": FullAttentionConfig(),
    "restricted": RestrictedAttentionConfig(neighbourhood=2),
    "relative": RelativeAttentionConfig(clipping_distance=2),
    "rotary": RotaryAttentionConfig(),
    "alibi": AlibiAttentionConfig(),
}

Build = Callable[..., Transformer]


@pytest.fixture(autouse=True)
def no_gradients() -> Any:
    with torch.no_grad():
        yield


def tokens(rows: int) -> Tensor:
    return torch.full((rows,), BOS)


def columns(state: TransformerState) -> list[list[list[int]]]:
    """The columns that each hypothesis of each sentence sees."""
    return [
        [(row == 0).nonzero().flatten().tolist() for row in sentence] for sentence in state.mask
    ]


def contents(state: TransformerState) -> list[Tensor]:
    """Copies of the caches' columns in use. The memory of the others is anything."""
    used = [cache[:, :, : state.mask.size(2)] for cache in state.target]
    return [tensor.clone() for tensor in (*state.source, *used)]


def addresses(state: TransformerState) -> list[int]:
    return [tensor.data_ptr() for tensor in (*state.source, *state.target)]


@pytest.mark.parametrize("attention", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize(
    "fields",
    [
        {"d_k": 4, "d_v": 5, "activation": "swish", "attention_biases": True, "output_bias": True},
        {
            "d_k": 6,
            "d_v": 2,
            "num_heads": 1,
            "norm": "pre",
            "positions": "none",
            "gated_feed_forward": True,
        },
        {"num_heads": 4, "num_layers": 1, "query_key_norm": True},
        {"positions": "learned", "max_positions": 6},  # fewer than the steps below
    ],
    ids=str,
)
def test_steps_of_two_beams_equal_the_full_pass(
    build: Build, attention: Any, fields: dict[str, Any]
) -> None:
    model = build(attention, **fields).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.copy_(torch.randn_like(parameter))
    decodable = FrozenTransformer(model)
    state = decodable.start(SOURCE[:2]).select(torch.tensor([[0, 0], [1, 1]]))
    source, prefix = SOURCE[[0, 0, 1, 1]], torch.empty(4, 0, dtype=torch.long)
    order, steps = torch.tensor([1, 0, 2, 2]), torch.empty(4, 0, model.vocabulary_size)
    for number in range(FIRST_COLUMNS):
        prefix = torch.cat([prefix[order], torch.tensor([[5], [6], [7], [8]]) + number % 7], dim=1)
        log_probabilities, state = decodable.step(prefix[:, -1], state.select(order.view(2, 2)))
        steps = torch.cat([steps[order], log_probabilities[:, None]], dim=1)
        if number % 8 == 7:
            torch.testing.assert_close(
                steps, model(source, prefix).log_softmax(-1), rtol=1e-4, atol=2e-5
            )


def test_a_hypothesis_sees_its_own_past(build: Build) -> None:
    decodable = FrozenTransformer(build().eval())
    state = decodable.start(SOURCE[:2])
    _, state = decodable.step(tokens(2), state)
    assert columns(state) == [[[0]], [[0]]]
    _, state = decodable.step(tokens(4), state.select(torch.tensor([[0, 0], [1, 1]])))
    assert columns(state) == [[[0, 1], [0, 2]], [[0, 1], [0, 2]]]
    _, state = decodable.step(tokens(4), state.select(torch.tensor([[1, 1], [3, 2]])))
    assert columns(state) == [[[0, 2, 3], [0, 2, 4]], [[0, 2, 3], [0, 1, 4]]]
    _, state = decodable.step(tokens(1), state.select(torch.tensor([[3]])))
    assert columns(state) == [[[0, 1, 4, 5]]]


def test_columns_that_nobody_sees_leave_a_full_cache(build: Build) -> None:
    """All hypotheses continue the same one each time, so one column of the last step is seen."""
    decodable, steps, width = FrozenTransformer(build().eval()), 150, 4
    state = decodable.start(SOURCE[:1]).select(torch.zeros(1, width, dtype=torch.long))
    sizes = []
    for _ in range(steps):
        _, state = decodable.step(tokens(width), state)
        sizes.append(state.target[0].size(2))
        state = state.select(torch.full((1, width), 2))
    assert sizes[0] == FIRST_COLUMNS
    assert sizes == sorted(sizes)
    assert sizes[-1] <= 2 * (steps + 2 * width)
    assert len(set(sizes)) < 15
    assert [len(seen) for seen in columns(state)[0]] == [steps] * width


def test_reordering_hypotheses_copies_no_cache(build: Build) -> None:
    decodable = FrozenTransformer(build().eval())
    state = decodable.start(SOURCE).select(torch.arange(4)[:, None].expand(4, 2))
    _, state = decodable.step(tokens(8), state)
    before, caches = addresses(state), contents(state)
    state = state.select(torch.tensor([[1, 0], [3, 3], [4, 5], [7, 6]]))
    assert addresses(state) == before
    assert all(map(torch.equal, contents(state), caches))


@pytest.mark.parametrize("staying", [[0, 3, 2], [3, 1], [0], []])
def test_of_the_sentences_that_stay_only_those_that_move_are_copied(
    build: Build, monkeypatch: pytest.MonkeyPatch, staying: list[int]
) -> None:
    decodable = FrozenTransformer(build().eval())
    _, state = decodable.step(tokens(4), decodable.start(SOURCE))
    assert state.source_mask is not None
    before, caches = addresses(state), [*contents(state), state.source_mask]
    caches = [tensor[staying].clone() for tensor in caches]
    written: list[int] = []
    set_item = Tensor.__setitem__

    def watched(tensor: Tensor, places: Any, values: Tensor) -> None:
        written.append(len(values))
        set_item(tensor, places, values)

    monkeypatch.setattr(Tensor, "__setitem__", watched)
    state = state.select(torch.tensor(staying, dtype=torch.long)[:, None])
    assert set(written) <= {sum(place != sentence for place, sentence in enumerate(staying))}
    assert addresses(state) == before or not staying
    assert state.source_mask is not None
    assert all(map(torch.equal, [*contents(state), state.source_mask], caches))


@pytest.mark.parametrize("attention", KERNELS.values(), ids=KERNELS)
def test_sentences_that_leave_do_not_change_the_others(build: Build, attention: Any) -> None:
    decodable = FrozenTransformer(build(attention).eval())
    (_, all_four), (_, some) = (
        decodable.step(tokens(4), decodable.start(SOURCE)) for _ in range(2)
    )
    some = some.select(torch.tensor([[0], [3], [2]]))
    for _ in range(5):
        expected, all_four = decodable.step(tokens(4), all_four)
        logits, some = decodable.step(tokens(3), some)
        torch.testing.assert_close(logits, expected[[0, 3, 2]], rtol=1e-5, atol=1e-5)


def test_the_source_has_a_mask_only_if_it_has_padding(build: Build) -> None:
    decodable = FrozenTransformer(build().eval())
    assert decodable.start(SOURCE[:1]).source_mask is None
    mask = decodable.start(SOURCE[:2]).source_mask
    assert mask is not None
    assert mask[:, 0, 0].isneginf().tolist() == (SOURCE[:2] == 0).tolist()


def test_a_kernel_that_extends_full_attention_is_used(build: Build) -> None:
    class Even(FullAttention):
        def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
            return super().forward(0.0 * query, key, value, mask)

    model = build().eval()
    for layer in (*model.encoder, *model.decoder):
        layer.self_attention.kernel = Even()
    decodable, target = FrozenTransformer(model), torch.tensor([[BOS, 5, 6, 7]])
    expected, state = model(SOURCE[:1], target)[0].log_softmax(-1), decodable.start(SOURCE[:1])
    for token, row in zip(target[0], expected, strict=True):
        log_probabilities, state = decodable.step(token[None], state)
        torch.testing.assert_close(log_probabilities[0], row, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_dtype_reaches_every_layer(
    build: Build, dtype: str, gated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each layer has two products of self-attention, two or three of feed-forward, 3 of cross."""
    asked: list[str] = []

    def watched(*arguments: Any, dtype: str = "float32", **_: Any) -> Any:
        asked.append(arguments[2] if len(arguments) > 2 else dtype)
        return lambda x: x

    monkeypatch.setattr(inference, "frozen_linear", watched)
    FrozenTransformer(build(gated_feed_forward=gated), dtype)
    assert asked == [dtype] * (2 * (4 + gated) + 2 * (7 + gated) + 1)


def test_the_copy_has_no_second_copy_of_other_weights(build: Build) -> None:
    """It keeps the weights of products that the model had, and compiles nothing."""
    model = build().eval()
    expected = model(SOURCE[:1], tokens(1)[None])[:, 0].log_softmax(-1)
    model.decoder[0].compile(backend=lambda *_: pytest.fail("it was compiled"))
    decodable = FrozenTransformer(model)
    model.decoder[0].feed_forward.outer.weight.zero_()
    log_probabilities, _ = decodable.step(tokens(1), decodable.start(SOURCE[:1]))
    torch.testing.assert_close(log_probabilities, expected)
    for weight, original in zip(decodable._model.parameters(), model.parameters(), strict=True):
        assert weight is original


def test_models_with_lines_of_their_own_are_not_taken(build: Build) -> None:
    class Other(Transformer):
        def step(self, *arguments: Any) -> Any:
            return super().step(*arguments)

    class OtherAttention(MultiHeadAttention):
        pass

    assert takes(build())
    model = build()
    model.__class__ = Other
    assert not takes(model)
    model = build()
    model.decoder[1].cross_attention.__class__ = OtherAttention
    assert not takes(model)
    assert not takes(nn.Linear(1, 1))
