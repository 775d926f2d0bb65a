"""Every registered model, and every registered attention in a Transformer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from nmt_cli import registry
from nmt_cli.criteria.label_smoothed_cross_entropy import LabelSmoothedCrossEntropy
from nmt_cli.criteria.settings import LabelSmoothingConfig
from nmt_cli.device import Plain, fast
from nmt_cli.distributed import World
from nmt_cli.errors import UsageError
from nmt_cli.fast.cpu.device import Fast as OnCPU
from nmt_cli.fast.cuda.bins import binned
from nmt_cli.fast.cuda.device import Fast as OnGPU
from nmt_cli.interfaces import (
    EOS,
    PAD,
    Batch,
    Decodable,
    DecoderState,
    ragged,
)
from nmt_cli.model import Model
from nmt_cli.training.gradients import Gradients, Objective


def variants() -> Iterator[Any]:
    """Every model, a Transformer with every attention, and choices other than the defaults."""
    for attention in registry.names("attention"):
        yield pytest.param(
            {"name": "transformer", "attention": attention}, id=f"transformer-{attention}"
        )
    for model in registry.components("model"):
        if model.name != "transformer":
            yield pytest.param({"name": model.name}, id=model.name)
        choices = {
            field.name: field.metadata.get("choices") or ()
            for field in dataclasses.fields(model.config)
        }
        if others := {name: values[-1] for name, values in choices.items() if values}:
            yield pytest.param(
                {"name": model.name, **others}, id="-".join([model.name, *others.values()])
            )
    yield pytest.param(
        {"name": "transformer", "num_decoder_layers": 1}, id="transformer-shallow-decoder"
    )
    yield pytest.param(
        {"name": "transformer", "query_key_norm": True}, id="transformer-query-key-norm"
    )
    yield pytest.param(
        {"name": "transformer", "attention_biases": True, "output_bias": True},
        id="transformer-biases",
    )


@pytest.fixture(params=variants())
def model(request: pytest.FixtureRequest, make_model: Callable[..., Any]) -> Any:
    return make_model(**request.param).eval()


@pytest.fixture(params=[Plain, fast], ids=["plain", "fast"])
def device(request: pytest.FixtureRequest) -> Plain:
    """What decodes: the models' own lines, or what the CPU does better."""
    chosen: Plain = request.param(torch.device("cpu"))
    return chosen


def full_pass(model: Any, source: Tensor, target_in: Tensor) -> Tensor:
    """Log-probabilities of every next token, [B, T, V]."""
    with torch.no_grad():
        result: Tensor = model(source, target_in).log_softmax(-1)
    return result


def close(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=1e-4, atol=2e-5)


@torch.no_grad()
def test_its_logits_and_steps(
    model: Any,
    device: Plain,
    request: pytest.FixtureRequest,
    make_config: Callable[..., Any],
    make_batch: Callable[..., Batch],
) -> None:
    assert isinstance(model, Model)
    name = request.node.callspec.params["model"]["name"]
    assert make_config("model", name).d_model == model.output_weight.size(1)  # the schedule gets it
    batch = make_batch()
    hidden = model.decoder_output(batch.source, batch.target_in)
    logits = model(batch.source, batch.target_in)
    assert hidden.shape[:2] == batch.target_in.shape
    assert model.output_weight.shape == (model.vocabulary_size, hidden.size(-1))
    close(logits, F.linear(hidden, model.output_weight, model.output_bias))
    decodable = device.decodable(model, "float32")
    assert isinstance(decodable, Decodable)
    assert decodable.vocabulary_size == model.vocabulary_size
    state = decodable.start(batch.source)
    assert isinstance(state, DecoderState)
    log_probabilities, _ = decodable.step(batch.target_in[:, 0], state)
    assert log_probabilities.dtype == torch.float32
    close(log_probabilities.exp().sum(-1), torch.ones(3))


def test_checkpoints_can_hold_it(
    model: Any,
    request: pytest.FixtureRequest,
    make_model: Callable[..., Any],
    make_batch: Callable[..., Batch],
) -> None:
    """It can be built on the meta device, and its named parameters are all of its state."""
    fields = request.node.callspec.params["model"]
    with torch.device("meta"):
        shapes = {
            name: parameter.shape for name, parameter in make_model(**fields).named_parameters()
        }
    assert shapes == {name: parameter.shape for name, parameter in model.named_parameters()}
    other, batch = make_model(**fields, seed=1).eval(), make_batch()
    with torch.no_grad():
        for mine, its in zip(other.parameters(), model.parameters(), strict=True):
            mine.copy_(its)
    assert torch.equal(
        full_pass(other, batch.source, batch.target_in),
        full_pass(model, batch.source, batch.target_in),
    )


@pytest.mark.parametrize("fitted", [OnCPU, OnGPU], ids=["cpu", "cuda"])
def test_a_device_computes_the_same(
    fitted: type[Plain],
    model: Any,
    request: pytest.FixtureRequest,
    make_model: Callable[..., Any],
    make_batch: Callable[..., Batch],
) -> None:
    """The hidden states, the loss and every gradient, of padded sentences and of bins."""
    computing = fitted(torch.device("cpu"))
    plain, criterion = (LabelSmoothedCrossEntropy(LabelSmoothingConfig()) for _ in range(2))
    faster = make_model(**request.node.callspec.params["model"]).eval()
    computing.fit(faster, criterion)
    padded = make_batch(more_source=2, more_target=1)
    real = padded.target_out != PAD
    with torch.no_grad():
        hidden = [
            one_model.decoder_output(padded.source, padded.target_in)[real]
            for one_model in (faster, model)
        ]
    close(*hidden)
    expected = plain(model, padded)
    gradients = torch.autograd.grad(expected.total, list(model.parameters()), allow_unused=True)
    batches = [padded]
    if computing.takes_bins(faster, criterion):
        batches.append(
            binned(
                *(
                    ragged([row[row > EOS].tolist() for row in ids])
                    for ids in (padded.source, padded.target_out)
                )
            )
        )
    for batch in batches:
        fast_loss = criterion(faster, batch)
        torch.testing.assert_close(fast_loss.total, expected.total, rtol=1e-5, atol=0)
        torch.testing.assert_close(fast_loss.nll, expected.nll, rtol=1e-5, atol=0)
        assert fast_loss.num_tokens == expected.num_tokens
        our_gradients = torch.autograd.grad(
            fast_loss.total, list(faster.parameters()), allow_unused=True
        )
        for mine, other in zip(our_gradients, gradients, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("model")
def test_sums_over_ranks_start_with_whole_gradients(
    request: pytest.FixtureRequest,
    make_model: Callable[..., Any],
    make_batch: Callable[..., Batch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """During the backward pass of the last micro-batch, and for every parameter once."""
    started: list[tuple[torch.Tensor, torch.Tensor]] = []

    def all_reduce(part: torch.Tensor, async_op: bool) -> Any:
        started.append((part, part.clone()))
        return SimpleNamespace(wait=lambda: None)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    copy = make_model(**request.node.callspec.params["model"]).eval()
    criterion = LabelSmoothedCrossEntropy(LabelSmoothingConfig())
    gradients = Gradients(
        Objective(copy, criterion, "float32"),
        torch.optim.SGD(copy.parameters()),
        torch.amp.GradScaler("cpu", enabled=False),
        World(0, 2, torch.device("cpu")),
        flat=True,
    )
    gradients.clear()
    gradients.add(make_batch([0, 1]), 0.25)
    assert not started
    gradients.add(make_batch([2]), 0.25, is_last=True)
    in_time = len(started)
    gradients.finish()
    assert sum(len(part) for part, _ in started) == sum(p.numel() for p in copy.parameters())
    for part, when_started in started:
        assert torch.equal(part, when_started)
    losses = [gradients.objective(make_batch(numbers))[0] for numbers in ([0, 1], [2])]
    total = (losses[0] + losses[1]) / 4
    expected = torch.autograd.grad(total, list(copy.parameters()), allow_unused=True)
    # A piece with a parameter that is not used is complete only when the pass has ended.
    assert in_time == len(started) or None in expected
    for parameter, gradient in zip(copy.parameters(), expected, strict=True):
        if gradient is not None:
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)


def test_attention_weights_are_optional(model: Any, make_batch: Callable[..., Batch]) -> None:
    """`nmt attention` shows them, around any kernel, for the kinds of attention that there are."""
    if not model.shows_attention:
        return
    batch, several = make_batch([2]), make_batch()
    S, T = batch.source.size(1), batch.target_in.size(1)
    weights = model.attention_weights(batch.source, batch.target_in)
    assert weights
    for kind, weight in weights.items():
        sentences, layers, heads, *shape = weight.shape
        assert sentences == 1
        assert layers * heads > 0
        assert shape == {"encoder": [S, S], "decoder": [T, T], "cross": [T, S]}[kind]
        close(weight.sum(-1), torch.ones(weight.shape[:-1]))
    assert "decoder" not in weights or not weights["decoder"].triu(1).any()
    again = model.attention_weights(batch.source, batch.target_in)
    assert all(torch.equal(weights[kind], again[kind]) for kind in weights)
    for number in range(3):
        alone = make_batch([number])
        for kind, weight in model.attention_weights(alone.source, alone.target_in).items():
            rows, columns = weight.shape[-2:]
            weights_alone = model.attention_weights(several.source, several.target_in)[kind]
            close(weights_alone[number, ..., :rows, :columns], weight[0])


def test_flops_are_optional(model: Any) -> None:
    """They grow with the sentences, and the bytes of two updates add up."""
    if not model.training_flops(np.array([5]), np.array([5])):
        return
    short, long = (sum(model.training_flops(np.array([n]), np.array([n])).values()) for n in (5, 9))
    both = sum(model.training_flops(np.array([5, 9]), np.array([5, 9])).values())
    assert 0 < short < long
    assert both == pytest.approx(short + long)


@torch.no_grad()
def test_a_cached_step_equals_the_full_pass(
    model: Any, device: Plain, make_batch: Callable[..., Batch]
) -> None:
    """The log-probabilities belong to the caller, who may keep them and change them in place."""
    batch, decodable = make_batch(), device.decodable(model, "float32")
    expected = full_pass(model, batch.source, batch.target_in)
    for _ in range(2):
        state, steps = decodable.start(batch.source), []
        for tokens in batch.target_in.T:
            log_probabilities, state = decodable.step(tokens, state)
            steps.append(log_probabilities)
        real = batch.target_in != PAD
        close(torch.stack(steps, dim=1)[real], expected[real])
        for log_probabilities in steps:
            log_probabilities.fill_(torch.nan)


class Rows:
    """The hypotheses of a search: a source, a random target, and log-probabilities at its steps."""

    def __init__(self, model: Any, device: Plain, source: Tensor) -> None:
        self.model, self.source = model, source
        self.decodable = device.decodable(model, "float32")
        self.state = self.decodable.start(source)
        self.prefix = torch.empty(len(source), 0, dtype=torch.long)
        self.log_probabilities = torch.empty(len(source), 0, model.vocabulary_size)
        self.width = 1
        self.random = torch.Generator().manual_seed(1)

    def step(self) -> None:
        new = torch.randint(EOS + 1, 30, (len(self.prefix), 1), generator=self.random)
        self.prefix = torch.cat([self.prefix, new], dim=1)
        log_probabilities, self.state = self.decodable.step(new[:, 0], self.state)
        self.log_probabilities = torch.cat(
            [self.log_probabilities, log_probabilities[:, None]], dim=1
        )

    def keep(self, sentences: list[int], width: int) -> None:
        """Continue `sentences`, in this order, with `width` random hypotheses of each."""
        hypotheses = torch.randint(self.width, (len(sentences), width), generator=self.random)
        rows = torch.tensor(sentences)[:, None] * self.width + hypotheses
        self.state, self.width = self.state.select(rows), width
        rows = rows.flatten()
        self.source, self.prefix = self.source[rows], self.prefix[rows]
        self.log_probabilities = self.log_probabilities[rows]


@torch.no_grad()
def test_a_long_search(model: Any, device: Plain, make_batch: Callable[..., Batch]) -> None:
    """Hypotheses are expanded, repeated, reordered and dropped in each step, sentences in some."""
    rows = Rows(model, device, make_batch().source)
    sentences, width = [0, 1, 2], 4
    for step in range(45):
        rows.step()
        if step % 5 == 0 or step in (38, 44):
            close(rows.log_probabilities, full_pass(model, rows.source, rows.prefix))
        if step in (15, 25, 30, 38):
            sentences, width = {15: ([2, 1, 0], 3), 25: ([0, 2], 4), 30: ([1, 0], 1), 38: ([1], 2)}[
                step
            ]
        rows.keep(sentences, width)
        sentences = list(range(len(sentences)))
    assert isinstance(rows.state.select(torch.empty(0, width, dtype=torch.long)), DecoderState)


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.03), ("int8", 0.1)])
def test_low_precision_is_close(
    model: Any, device: Plain, make_batch: Callable[..., Batch], dtype: str, tolerance: float
) -> None:
    """The root mean square error of log-probabilities, relative to their standard deviation."""
    batch = make_batch()
    expected = full_pass(model, batch.source, batch.target_in)
    try:
        decodable = device.decodable(model, dtype)
    except UsageError:
        assert dtype == "int8"  # some models refuse it
        return
    state, errors = decodable.start(batch.source), []
    for t in range(batch.target_in.size(1)):
        log_probabilities, state = decodable.step(batch.target_in[:, t], state)
        assert log_probabilities.dtype == torch.float32
        close(log_probabilities.exp().sum(-1), torch.ones(3))
        errors.append((log_probabilities - expected[:, t])[batch.target_in[:, t] != PAD])
    error = torch.cat(errors).square().mean().sqrt() / expected.std()
    assert error < tolerance
    # The model is as it was.
    assert torch.equal(full_pass(model, batch.source, batch.target_in), expected)


def test_padding_changes_no_real_position(
    model: Any, device: Plain, make_batch: Callable[..., Batch]
) -> None:
    plain, padded = make_batch(), make_batch(more_source=7, more_target=9)
    real = plain.target_out != PAD
    output = full_pass(model, padded.source, padded.target_in)[:, : real.size(1)]
    close(output[real], full_pass(model, plain.source, plain.target_in)[real])
    decodable = device.decodable(model, "float32")
    with torch.no_grad():
        close(
            *(
                decodable.step(plain.target_in[:, 0], decodable.start(b.source))[0]
                for b in (plain, padded)
            )
        )


def test_the_rest_of_the_batch_changes_nothing(
    model: Any, make_batch: Callable[..., Batch]
) -> None:
    together = make_batch()
    all_rows = full_pass(model, together.source, together.target_in)
    for number in range(3):
        alone = make_batch([number])
        rows = full_pass(model, alone.source, alone.target_in)
        close(all_rows[number : number + 1, : rows.size(1)], rows)
    swapped = make_batch([2, 0, 1])
    close(full_pass(model, swapped.source, swapped.target_in), all_rows[[2, 0, 1]])


def test_no_position_attends_to_later_ones(model: Any, make_batch: Callable[..., Batch]) -> None:
    batch = make_batch([1])
    changed = batch.target_in.clone()
    changed[:, 6:] = 5
    before, after = (
        full_pass(model, batch.source, target) for target in (batch.target_in, changed)
    )
    close(before[:, :6], after[:, :6])  # products of other sizes may round otherwise
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_every_weight_learns(model: Any, make_batch: Callable[..., Batch]) -> None:
    """In training, every parameter has a finite gradient."""
    model, batch = model.train(), make_batch()
    model(batch.source, batch.target_in)[batch.target_out != PAD].log_softmax(
        -1
    ).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("name", registry.names("model"))
def test_separate_vocabularies(
    name: str, device: Plain, make_model: Callable[..., Any], make_batch: Callable[..., Batch]
) -> None:
    model = make_model(name, shared_vocabulary=False).eval()
    # 34 is no id of the target.
    source, target_in = (torch.tensor([[5, 34, EOS]] * 3), make_batch().target_in)
    expected = full_pass(model, source, target_in)
    assert expected.size(-1) == model.vocabulary_size == 30
    decodable = device.decodable(model, "float32")
    with torch.no_grad():
        log_probabilities, _ = decodable.step(target_in[:, 0], decodable.start(source))
    close(log_probabilities, expected[:, 0])
