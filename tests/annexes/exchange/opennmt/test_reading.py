"""Imported models of OpenNMT-py compute what OpenNMT-py 3.5.1 computes.

`tiny/` has a model that it trained, without the optimizer's state and with 8 rows of its encodings,
and its greedy outputs and their log-probabilities.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from imported_models import Run, check_import, imported, log_probabilities
from reference_transformer import OPENNMT, Reference, halves
from safetensors.torch import save_file

from nmt_cli import checkpoint
from nmt_cli.layers.embedding import sinusoids
from nmt_cli.weights import load_weights

TINY = Path(__file__).parent / "tiny"
EXAMPLES = json.loads((TINY / "expected.json").read_text("utf-8"))
OPTIONS = ("--source-lang", "en", "--target-lang", "de", "--subwords", TINY / "joint.model")
EMBEDDING = "{}.embeddings.make_embedding.emb_luts.0.weight"


@pytest.fixture
def saved() -> dict[str, Any]:
    return torch.load(TINY / "model_step_250.pt", weights_only=False)


@pytest.fixture
def changed(saved: dict[str, Any], tmp_path: Path) -> Callable[..., Path]:
    """Writes the tiny model with other options, and what `change` does to it."""

    def write(
        change: Callable[[dict[str, Any]], None] = lambda saved: None, **options: Any
    ) -> Path:
        vars(saved["opt"]).update(options)
        change(saved)
        torch.save(saved, tmp_path / "changed.pt")
        return tmp_path / "changed.pt"

    return write


def test_a_trained_model_translates_and_scores_as_there(nmt: Run, tmp_path: Path) -> None:
    check_import(nmt, TINY / "model_step_250.pt", tmp_path / "imported", OPTIONS, EXAMPLES)


def test_it_is_fine_tuned(nmt: Run, changed: Callable[..., Path], tmp_path: Path) -> None:
    imported(nmt, changed(), *OPTIONS)
    for split, count in (("train", 12), ("valid", 4)):
        for language, side in (("en", "source"), ("de", "output")):
            lines = "".join(f"{example[side]}\n" for example in EXAMPLES[:count])
            (tmp_path / f"{split}.{language}").write_text(lines, encoding="utf-8")
    texts = ("--train", tmp_path / "train", "--valid", tmp_path / "valid", "--workers", 1)
    code, _, err = nmt(
        "prepare",
        *OPTIONS[:4],
        *texts,
        "--subwords-from",
        tmp_path / "imported",
        "--out",
        tmp_path / "d",
    )
    assert code == 0, err
    limits = ("--max-steps", 2, "--batch-tokens", 100, "--device", "cpu")
    code, _, err = nmt(
        "train",
        tmp_path / "d",
        "--init-from",
        tmp_path / "imported",
        "--out",
        tmp_path / "run",
        *limits,
    )
    assert code == 0, err
    before, after = (
        load_weights(path) for path in (tmp_path / "imported", checkpoint.locate(tmp_path / "run"))
    )
    assert before.keys() == after.keys()
    assert not before["separate_output"].equal(after["separate_output"])


def _noisy(saved: dict[str, Any]) -> None:
    for name, tensor in [*saved["model"].items(), *saved["generator"].items()]:
        tensor.add_(
            0.2 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(len(name)))
        )


def _biases(saved: dict[str, Any]) -> None:
    _noisy(saved)
    weights = saved["model"]
    for name in [name for name in weights if "linear" in name or ".w_" in name]:
        generator = torch.Generator().manual_seed(len(name))
        weights[name.replace("weight", "bias")] = torch.randn(
            len(weights[name]), generator=generator
        )


def _second_version(saved: dict[str, Any]) -> None:
    _noisy(saved)
    saved["generator"] = {f"0.{name}": tensor for name, tensor in saved["generator"].items()}


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (_noisy, {}),
        (_biases, {"pos_ffn_activation_fn": "gelu"}),
        (_noisy, {"position_encoding_type": "SinusoidalConcat", "norm_eps": 0.1}),
        (_noisy, {"position_encoding": False}),
        (_second_version, {}),
    ],
)
def test_variants(
    nmt: Run,
    changed: Callable[..., Path],
    saved: dict[str, Any],
    change: Any,
    options: dict[str, Any],
) -> None:
    model, task = imported(nmt, changed(change, **options), *OPTIONS)
    weights = saved["model"]
    activation = torch.nn.functional.gelu if "pos_ffn_activation_fn" in options else torch.relu
    reference = Reference(weights, OPENNMT, 2, True, options.get("norm_eps", 1e-6), activation)
    source, target = (
        [saved["vocab"][side].index(piece) for piece in EXAMPLES[0][name].split(" ")]
        for side, name in (("src", "pieces"), ("tgt", "output_pieces"))
    )
    bos_id, end = map(saved["vocab"]["tgt"].index, ("<s>", "</s>"))
    states = []
    for side, tokens in (("encoder", source), ("decoder", [bos_id, *target])):
        x = weights[EMBEDDING.format(side)][tokens]
        if options.get("position_encoding", True):
            concatenated = "position_encoding_type" in options
            x = 4 * x + (
                halves(0, len(tokens), 16) if concatenated else sinusoids(0, len(tokens), 16)
            )
        states.append(reference.stack(x, *states))
    output = {name.removeprefix("0."): tensor for name, tensor in saved["generator"].items()}
    following = [*target, end]
    logits = states[1] @ output["weight"].T + output["bias"]
    expected = logits.log_softmax(1)[range(len(following)), following]
    log_probs = log_probabilities(model, task, EXAMPLES[0]["source"], EXAMPLES[0]["output"])
    assert log_probs == pytest.approx(expected.tolist(), abs=1e-4)


def test_weights_beside_the_file(
    nmt: Run, changed: Callable[..., Path], saved: dict[str, Any], tmp_path: Path
) -> None:
    """As with `-save_format safetensors`."""
    path = changed()
    everything = {
        **saved["model"],
        **{f"generator.{name}": tensor for name, tensor in saved["generator"].items()},
    }
    del saved["model"], saved["generator"]
    torch.save(saved, path)
    code, _, err = nmt("import", path, "--out", tmp_path / "imported", *OPTIONS)
    assert code == 1
    assert "changed.safetensors is not beside it" in err
    save_file(everything, tmp_path / "changed.safetensors")
    model_and_task = imported(nmt, path, *OPTIONS)
    scores = log_probabilities(*model_and_task, EXAMPLES[0]["source"], EXAMPLES[0]["output"])
    assert scores == pytest.approx(EXAMPLES[0]["log_probabilities"], abs=1e-4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder_type", "brnn"),
        ("max_relative_positions", -1),
        ("layer_norm", "rms"),
        ("parallel_residual", True),
        ("copy_attn", True),
        ("pos_ffn_activation_fn", "silu"),
        ("self_attn_type", "average"),
        ("position_encoding_type", "Rotary"),
        ("relative_positions_buckets", 32),
        ("multiquery", True),
        ("lora_layers", ["linear_query"]),
        ("quant_type", "bnb_8bit"),
    ],
)
def test_other_settings_are_refused(
    nmt: Run, changed: Callable[..., Path], name: str, value: Any
) -> None:
    path = changed(**{name: value})
    code, _, err = nmt("import", path, "--out", path.parent / "imported", *OPTIONS)
    assert code == 1
    assert f"{path}: cannot be imported: its {name} is {value!r}" in err
    assert not (path.parent / "imported").exists()


def test_a_number_that_is_none_is_an_error(nmt: Run, changed: Callable[..., Path]) -> None:
    path = changed(dropout=[10**400])
    code, _, err = nmt("import", path, "--out", path.parent / "imported", *OPTIONS)
    assert code == 1
    assert f"{path}: cannot be imported: OverflowError" in err


def test_a_language_is_needed(nmt: Run, tmp_path: Path) -> None:
    shutil.copy(TINY / "model_step_250.pt", tmp_path)
    path = tmp_path / "model_step_250.pt"
    code, _, err = nmt("import", path, "--out", tmp_path / "imported", "--source-lang", "en")
    assert code == 2
    assert "--target-lang" in err
    assert list(tmp_path.iterdir()) == [path]
