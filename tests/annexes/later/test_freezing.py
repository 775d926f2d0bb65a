"""Frozen parameters: they stay as they are, and nothing is computed or kept for them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tiny_run
import torch
from torch import Tensor, nn

from nmt_cli import checkpoint, registry
from nmt_cli.annexes.doctor.resume import contents
from nmt_cli.annexes.later.freezing import freeze
from nmt_cli.config import resolve
from nmt_cli.errors import UsageError
from nmt_cli.model import Model
from nmt_cli.training.gradients import trained
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.training.start import model_without_weights
from nmt_cli.weights import load_training, load_weights

Nmt = Callable[..., tuple[int, str, str]]
SIZES = tiny_run.SIZES | {"num_layers": 2}
run = partial(
    tiny_run.run, num_layers=2, max_steps=6, save_every=3, log_every=2, precision="float32"
)


def model_of(**settings: Any) -> Any:
    registry.discover()
    vocabulary = dict(zip(checkpoint.VOCABULARY, (9, 8, False), strict=True))
    return model_without_weights(resolve(TrainingConfig, settings), vocabulary)


def frozen(patterns: Sequence[str], **settings: Any) -> set[str]:
    model = model_of(**SIZES | settings)
    freeze(model, patterns)
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


def test_parts_and_patterns() -> None:
    names = [
        name for name, _ in model_of(**SIZES, positions="learned", norm="pre").named_parameters()
    ]
    settings = {"positions": "learned", "norm": "pre"}
    encoder = {name for name in names if name.startswith("encoder")}
    assert "encoder_norm.weight" in encoder
    assert frozen(["encoder"], **settings) == encoder
    embeddings = {name for name in names if name.startswith(("source_", "target_"))}
    assert frozen(["embeddings"], **settings) == embeddings
    assert frozen(["decoder"], **settings) == set(names) - embeddings - encoder
    assert frozen(["target_embedding.weight", "*.w_q.*"]) == {
        "target_embedding.weight",
        *(name for name in names if ".w_q." in name),
    }


@pytest.mark.parametrize("model", ["transformer", "gnmt", "moe", "convs2s", "bytenet", "deep_att"])
def test_every_parameter_is_in_one_part(model: str) -> None:
    """Or of the output layer."""
    network = model_of(model=model)
    parts = network.parts()
    assert list(parts) == ["embeddings", "encoder", "decoder"]
    counts = Counter(
        id(weight) for part in parts.values() for module in part for weight in module.parameters()
    )
    for name, parameter in network.named_parameters():
        assert counts[id(parameter)] == (0 if name.startswith("output") else 1), name


def test_a_model_of_a_plug_in_names_its_parts() -> None:
    class Mute(Model):
        def __init__(self) -> None:
            super().__init__()
            self.ears, self.mouth = nn.Linear(2, 3), nn.Linear(3, 2)

        @property
        def output_weight(self) -> Tensor:
            return self.mouth.weight

        def decoder_output(self, source: Tensor, target_in: Tensor) -> Tensor:
            raise NotImplementedError

    class Mine(Mute):
        def parts(self) -> dict[str, list[nn.Module]]:
            return {"hearing": [self.ears]}

    model = Mine()
    freeze(model, ["hearing"])
    assert list(map(id, trained(model))) == list(map(id, model.mouth.parameters()))
    with pytest.raises(UsageError, match="It takes hearing or a pattern"):
        freeze(model, ["?"])
    with pytest.raises(UsageError, match="It takes a pattern"):
        freeze(Mute(), ["encoder"])


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (
            ["encodr"],
            r"--freeze encodr: the model has no parameter of this name. Did you mean encoder",
        ),
        (
            ["encoder", "decoder.0.self_attn.*"],
            r"--freeze decoder.0.self_attn.*: .* Did you mean decoder.0",
        ),
        (
            ["?"],
            r"It takes embeddings, encoder, decoder or a pattern of names such as "
            r"target_embedding.weight",
        ),
        (
            ["embeddings", "encoder", "decoder"],
            r"embeddings --freeze encoder --freeze decoder: nothing is left",
        ),
    ],
)
def test_patterns_that_are_refused(patterns: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        frozen(patterns)


def tensors_of(run: Path) -> tuple[dict[str, torch.Tensor], set[int]]:
    """The weights, and the numbers of the parameters that the optimizer has a state of."""
    folder = checkpoint.locate(run)
    moments = load_training(folder).tensors
    return load_weights(folder), {int(name.partition(".")[0]) for name in moments}


@pytest.mark.parametrize(
    ("freeze", "names", "more"),
    [
        (("encoder",), "encoder*", {}),
        (
            ("embeddings", "decoder.1.*"),
            "*_embedding.* decoder.1.*",
            {"optimizer": "sgd", "clip_norm": 0.1},
        ),
        (
            ("embeddings", "encoder"),
            "*_embedding.* encoder*",
            {"model": "moe_transformer", "precision": "bfloat16", "num_layers": 1, "experts": 2},
        ),
    ],
)
def test_they_keep_their_values_bit_for_bit(
    freeze: tuple[str, ...], names: str, more: dict[str, Any], tiny_data: Path, tmp_path: Path
) -> None:
    """All others move.

    There is a state of the optimizer for these alone, and a stop changes nothing.
    """
    run(tiny_data, tmp_path / "before", **more, max_steps=1, learning_rate_scale=0.0)
    run(tiny_data, tmp_path / "whole", **more, freeze=freeze)
    (before, _), (after, states) = tensors_of(tmp_path / "before"), tensors_of(tmp_path / "whole")
    same = {name for name, weight in before.items() if torch.equal(weight, after[name])}
    expected = {
        name for name in before if any(fnmatchcase(name, pattern) for pattern in names.split())
    }
    assert same == expected
    assert len(states) == len(before) - len(expected)
    run(tiny_data, tmp_path / "parts", **more, freeze=freeze, max_steps=3)
    run(tiny_data, tmp_path / "parts", **more, freeze=freeze)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    summary = json.loads((tmp_path / "whole" / "summary.json").read_text())
    assert summary["flops"] is None
    assert summary["model_flop_utilisation"] is None


def test_the_command(nmt: Nmt, tiny_data: Path, tmp_path: Path) -> None:
    """The flag is repeated, recorded, shown, and cannot change in a resumed run."""
    settings = SIZES | {
        "batch_tokens": 500,
        "device": "cpu",
        "sustained_tflops": 1,
        "peak_tflops": 1,
    }
    flags = [*tiny_run.words(settings), "--freeze", "embeddings", "--freeze", "encoder.0.*"]
    model = model_of(**SIZES)
    freeze(model, ["embeddings", "encoder.0.*"])
    learning = sum(parameter.numel() for parameter in trained(model))
    code, out, err = nmt("train", tiny_data, *flags, "--max-steps", 2, "--out", tmp_path / "run")
    assert (code, out) == (0, ""), err
    assert f" parameters, {learning:,} of them trained; 900 sentence pairs; 2 steps" in err
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())
    assert recorded["training"]["freeze"] == ["embeddings", "encoder.0.*"]
    code, _, err = nmt("train", tiny_data, *flags[:-2], "--max-steps", 4, "--out", tmp_path / "run")
    assert (code, "--training.freeze was embeddings encoder.0.*, now embeddings" in err) == (
        2,
        True,
    ), err
    code, out, _ = nmt("train", tiny_data, *flags, "--dry-run", "--json")
    shown = json.loads(out)
    assert (code, shown["trained_parameters"], "training_step_flops" in shown) == (
        0,
        learning,
        False,
    )
    assert shown["config"]["training"]["freeze"] == ["embeddings", "encoder.0.*"]
