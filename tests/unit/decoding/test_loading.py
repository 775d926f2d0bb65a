from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt_cli
from nmt_cli.decoding import own_engine
from nmt_cli.decoding.engine import Loading
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.loading import load_translator
from nmt_cli.decoding.options import SearchOptions, TranslateOptions
from nmt_cli.errors import CheckpointError, UsageError

LINES = ["abc", "hgfedcba", "", "a"]


def test_an_ensemble_of_a_checkpoint_with_itself_is_that_checkpoint(tiny_checkpoint: Path) -> None:
    alone = nmt_cli.load(tiny_checkpoint, device="cpu")
    twice = nmt_cli.load([tiny_checkpoint] * 2, device="cpu")
    assert isinstance(twice.engine.model, Ensemble)  # type: ignore[attr-defined]
    for translator, members in ((alone, 1), (twice, 2)):
        assert [model.training for model in translator.engine.models] == [False] * members  # type: ignore[attr-defined]
    assert twice.translate(LINES) == alone.translate(LINES)


@pytest.mark.parametrize("supported", [True, False])
def test_a_gpu_computes_in_bfloat16_or_float16(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, supported: bool
) -> None:
    read, asked = own_engine.load_model, list[str]()
    monkeypatch.setattr(
        own_engine, "load_model", lambda folder, device: read(folder, torch.device("cpu"))
    )
    monkeypatch.setattr(own_engine, "choose_device", torch.device)
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation: supported or including_emulation,
    )
    volta = types.SimpleNamespace(major=7)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: volta)
    monkeypatch.setattr(
        own_engine.OwnEngine, "of", lambda task, models, device, dtype, folders: asked.append(dtype)
    )
    for device, dtype in itertools.product(("cuda", "cpu"), ("auto", "float32")):
        said: Any = {"options": TranslateOptions(), "workers": None, "scores": True, "say": print}
        own_engine.load(Loading(checkpoints=[tiny_checkpoint], device=device, dtype=dtype, **said))
    assert asked == ["bfloat16" if supported else "float16", "float32", "float32", "float32"]


def test_a_run_stands_for_its_newest_checkpoint_and_says_so(
    make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    for step in (9, 10):
        make_checkpoint(tmp_path / f"checkpoints/step-{step:08}", seed=step)
    said: list[str] = []
    with pytest.raises(UsageError, match="--nbest"):
        load_translator([tmp_path], TranslateOptions(search=SearchOptions(nbest=99)), device="cpu")
    run = load_translator([tmp_path], device="cpu", say=said.append)
    newest = load_translator(
        [tmp_path / "checkpoints/step-00000010"], device="cpu", say=said.append
    )
    assert [t.outputs for t in run.translate_window(LINES)] == [
        t.outputs for t in newest.translate_window(LINES)
    ]
    assert len(said) == 1
    assert "step-00000010" in said[0]


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16", "int8"])
def test_dtype_reaches_the_products(tiny_checkpoint: Path, dtype: str) -> None:
    exact = nmt_cli.load(tiny_checkpoint, device="cpu")
    chosen = load_translator([tiny_checkpoint], device="cpu", dtype=dtype)
    scores, expected = (
        [t.outputs[0].score for t in translator.translate_window(["abc"])]
        for translator in (chosen, exact)
    )
    assert scores == pytest.approx(expected, rel=0.02)
    assert (scores == expected) == (dtype in ("auto", "float32"))


def test_float16_needs_a_gpu(tiny_checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="--dtype float16 needs a GPU"):
        nmt_cli.load(tiny_checkpoint, device="cpu", dtype="float16")


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        nmt_cli.load([], device="cpu")
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        nmt_cli.load(tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("other", "difference"),
    [({"letters": "ijklmnop"}, "source vocabulary"), ({"normalization": "nfc"}, "--normalization")],
)
def test_models_that_read_a_line_as_other_ids_are_no_ensemble(
    make_checkpoint: Callable[..., Path],
    tiny_checkpoint: Path,
    tmp_path: Path,
    other: Any,
    difference: str,
) -> None:
    """Though their vocabularies have the same size, or are equal."""
    other_model = make_checkpoint(tmp_path / "other", **other)
    with pytest.raises(CheckpointError, match=rf"{other_model}.*{difference}"):
        nmt_cli.load([tiny_checkpoint, other_model], device="cpu")
