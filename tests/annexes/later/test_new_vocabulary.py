"""A model for another vocabulary: rows by piece, from joint and separate vocabularies to either."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli import checkpoint, registry
from nmt_cli.annexes.later.new_vocabulary import vocabulary_rows, weights_for
from nmt_cli.commands.prepare import PrepareOptions, prepare
from nmt_cli.config import resolve
from nmt_cli.interfaces import SPECIAL_SYMBOLS
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask
from nmt_cli.training.origin import Origin
from nmt_cli.training.settings import TrainingConfig
from nmt_cli.weights import assign_weights, load_weights, weights_of

SETTINGS = {
    "transformer": {
        "num_layers": 1,
        "d_model": 16,
        "d_ff": 32,
        "num_heads": 2,
        "output_bias": True,
    },
    "gnmt": {"num_layers": 2, "d_model": 16},
}
SHORT = "--batch-tokens 500 --log-every 1 --device cpu --max-steps 2".split()


def task_of(source: str, target: str, separate: bool) -> TranslationTask:
    """A task with a piece for each letter of each side, or of both."""
    size = 5 + max(len(source), len(target)) if separate else 5 + len({*source, *target})
    settings = {"vocab_size": size, "separate_vocabularies": separate, "subwords": "character"}
    task = TranslationTask(TranslationConfig("en", "de", **settings))
    task.learn([(source, target)])
    return task


def model_of(model: str, task: TranslationTask, seed: int) -> Any:
    registry.discover()
    config = resolve(TrainingConfig, {"model": model, **SETTINGS[model]})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        built = registry.build(
            config["model"], attention=config["attention"], **checkpoint.vocabulary_of(task)
        )
        for parameter in built.parameters():
            torch.nn.init.normal_(parameter)
    return config, built


def rows_by_piece(model: Any, task: TranslationTask, name: str, side: str) -> dict[str, Tensor]:
    size = getattr(task, f"{side}_vocabulary_size")
    pieces = [*SPECIAL_SYMBOLS, *getattr(task, f"{side}_tokens")(range(4, size))]
    return dict(zip(pieces, model.get_parameter(name), strict=True))


@pytest.mark.parametrize("model", SETTINGS)
@pytest.mark.parametrize(("before", "after"), [*itertools.product((False, True), repeat=2)])
def test_rows_are_matched_by_piece(model: str, before: bool, after: bool) -> None:
    """All other weights are the checkpoint's."""
    old, new = task_of("abcdefxyz", "abcdefuvw", before), task_of("zyxcbamn", "wcbapqaz", after)
    config, former = model_of(model, old, 1)
    _, new_model = model_of(model, new, 2)
    _, initial = model_of(model, new, 2)
    lines: list[str] = []
    origin = Origin({"path": "checkpoint"}, weights_of(former), old)
    assign_weights(
        new_model, weights_for(new_model, new, config, origin, lines.append), "checkpoint"
    )
    biases = ["output_bias"] if model == "transformer" else ["output.weight"]
    embeddings = [("source_embedding.weight", "source"), ("target_embedding.weight", "target")]
    for name, side in [*embeddings, *((name, "target") for name in biases)]:
        former_rows = rows_by_piece(former, old, name, side)
        # One matrix: of both sides, the target first.
        if "embedding" in name and not after and model == "transformer":
            former_rows = {
                piece: row
                for model_of_rows in embeddings
                for piece, row in rows_by_piece(former, old, *model_of_rows).items()
            }
        new_rows, start = (
            rows_by_piece(model_of_rows, new, name, side) for model_of_rows in (new_model, initial)
        )
        for piece, row in new_rows.items():
            assert torch.equal(row, former_rows.get(piece, start[piece])), (name, piece)
        assert {*new_rows} & {*former_rows} > {*SPECIAL_SYMBOLS, "a", "b", "c"}
    rows = {
        name
        for model_of_rows, task in ((config, old), (config, new))
        for name, _ in vocabulary_rows(model_of_rows, task).values()
    }
    others = [name for name, _ in new_model.named_parameters() if name not in rows]
    assert len(others) > 5
    assert all(
        torch.equal(new_model.get_parameter(name), former.get_parameter(name)) for name in others
    )
    assert [line.split()[3] for line in lines if "taken over" in line] == (
        ["source", "target"] if after else ["joint"]
    )


def test_the_counts_are_told() -> None:
    old, new = task_of("abc", "abc", False), task_of("abc", "opqrstu", True)
    config, former = model_of("transformer", old, 1)
    lines: list[str] = []
    origin = Origin({"path": "x"}, weights_of(former), old)
    weights_for(model_of("transformer", new, 2)[1], new, config, origin, lines.append)
    size = new.target_vocabulary_size
    assert set(lines) == {
        "8 of 8 source pieces taken over; 0 new",
        f"5 of {size} target pieces taken over; {size - 5} new",
        "warning: fewer than half of the target pieces are in the vocabulary of the checkpoint",
    }


@pytest.fixture
def train(nmt: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str]]:
    return lambda *arguments: nmt("train", *arguments)[::2]


@pytest.mark.parametrize("separate", [False, True])
def test_it_must_be_asked_for_and_is_resumed(
    train: Callable[..., tuple[int, str]], tiny_data: Path, tmp_path: Path, separate: bool
) -> None:
    """By both commands, also before the first checkpoint, and to the same bits."""
    sizes = "--num-layers 1 --d-model 16 --d-ff 24 --num-heads 2 --dropout 0".split()
    assert train(tiny_data, *sizes, *SHORT, "--out", tmp_path / "origin")[0] == 0
    options = PrepareOptions(
        out=tmp_path / "data", train=(str(tiny_data.parent / "train"),), workers=1
    )
    prepare(
        options,
        {
            "source_lang": "en",
            "target_lang": "de",
            "vocab_size": 90,
            "separate_vocabularies": separate,
        },
    )
    given = (
        tmp_path / "data",
        "--init-from",
        tmp_path / "origin",
        *SHORT,
        "--out",
        tmp_path / "run",
    )
    code, err = train(*given)
    assert (code, "Or give --new-vocabulary:" in err) == (1, True), err
    for more in (("--dry-run",), ()):
        code, err = train(*given, "--new-vocabulary", *more)
        assert (code, "pieces taken over; " in err) == (0, True), err
    run = tmp_path / "run"
    assert json.loads((run / "config.json").read_text())["origin"]["new_vocabulary"] is True
    expected = load_weights(checkpoint.locate(run))
    for again in (("--resume", run), given):
        shutil.rmtree(run / "checkpoints")
        code, err = train(*again)
        assert (code, "pieces taken over; " in err) == (0, True), err
        weights = load_weights(checkpoint.locate(run))
        assert all(torch.equal(weights[name], weight) for name, weight in expected.items())
    shutil.rmtree(tmp_path / "origin")
    assert train("--resume", run, "--max-steps", 3)[0] == 0


def test_without_a_checkpoint_it_has_no_meaning(
    train: Callable[..., tuple[int, str]], tiny_data: Path
) -> None:
    code, err = train(tiny_data, "--new-vocabulary", "--out", "run")
    assert (code, "--new-vocabulary is for --init-from" in err) == (2, True), err
