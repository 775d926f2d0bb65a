"""A run from a checkpoint: first loss and step, its record, refusals, and its resume."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_run import metrics

from nmt_cli import checkpoint
from nmt_cli.cli import main
from nmt_cli.commands.prepare import PrepareOptions, prepare
from nmt_cli.weights import load_weights

Train = Callable[..., tuple[int, str]]
SIZES = "--num-layers 1 --d-model 16 --d-ff 24 --num-heads 2 --dropout 0".split()
SHORT = "--batch-tokens 500 --log-every 1 --device cpu".split()


@pytest.fixture(scope="module")
def origin(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 2 steps, which is validated at its end."""
    folder = tmp_path_factory.mktemp("origin") / "run"
    with pytest.raises(SystemExit) as end:
        main(["train", str(tiny_data), *SIZES, *SHORT, "--max-steps", "2", "--out", str(folder)])
    assert not end.value.code
    return folder


@pytest.fixture
def train(nmt: Callable[..., tuple[int, str, str]]) -> Train:
    """Runs `nmt train ARGUMENTS` here: exit code, stderr."""
    return lambda *arguments: nmt("train", *arguments)[::2]


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_weights(checkpoint.locate(run))


def test_the_origin_is_validated_first(
    train: Train, origin: Path, tiny_data: Path, tmp_path: Path
) -> None:
    """At step 0, with the loss that it had.

    It stays the best of a run in which nothing improves, when resumed too.
    """
    last = metrics(origin)[-1]
    run = tmp_path / "run"
    given = (
        tiny_data,
        "--init-from",
        origin,
        *SHORT,
        "--learning-rate-scale",
        0,
        "--save-every",
        2,
        "--out",
        run,
    )
    assert train(*given, "--max-steps", 2)[0] == 0
    (run / "best").unlink()  # as if a kill came before it was made
    code, err = train("--resume", run, "--patience", 2, "--max-steps", 9)
    assert (code, "stopped at step 4: " in err) == (0, True), err
    assert f"next: nmt translate {run / 'best'}\n" in err
    lines = metrics(run)
    assert [(line["step"], line["lr"], line["loss"] is None) for line in lines[:2]] == [
        (0, 0, True),
        (1, 0, False),
    ]
    assert [line["validation_loss"] for line in lines if "validation_loss" in line] == [
        last["validation_loss"]
    ] * 3
    assert checkpoint.read_contents(run / "best").step == 0
    assert all(
        torch.equal(weights_of(origin)[name], weight)
        for name, weight in weights_of(run / "best").items()
    )


def test_it_says_where_it_comes_from(
    train: Train, origin: Path, tiny_data: Path, tmp_path: Path
) -> None:
    run, folder = tmp_path / "run", checkpoint.locate(origin)
    assert train(tiny_data, "--init-from", folder, *SHORT, "--max-steps", 1, "--out", run)[0] == 0
    before = checkpoint.read_contents(folder)
    contents = checkpoint.read_contents(checkpoint.locate(run))
    expected = {"path": str(folder.resolve()), "run": before.run, "step": 2}
    assert contents.origin == json.loads((run / "config.json").read_text())["origin"] == expected
    assert (contents.step, contents.sections["model"]) == (1, before.sections["model"])
    assert before.origin is None
    assert contents.run != before.run


def test_it_resumes_without_its_origin(
    train: Train, origin: Path, tiny_data: Path, tmp_path: Path
) -> None:
    """By both commands, to the same bits as without interruption.

    With a loss that is drawn at random.
    """
    moved = tmp_path / "origin"
    shutil.copytree(origin, moved, symlinks=True)
    given = (tiny_data, "--init-from", moved, *SHORT, "--criterion", "expected_reward")
    given = (
        *given,
        "--samples",
        2,
        "--max-length-offset",
        2,
        "--precision",
        "float32",
        "--validate-every",
        9,
    )
    assert train(*given, "--out", tmp_path / "whole", "--max-steps", 3)[0] == 0
    assert train(*given, "--out", tmp_path / "run", "--max-steps", 1)[0] == 0
    shutil.rmtree(moved)
    assert train("--resume", tmp_path / "run", "--max-steps", 2)[0] == 0
    code, err = train(*given, "--out", tmp_path / "run", "--max-steps", 3)
    assert (code, "starting from" in err) == (0, False), err
    expected, resumed = weights_of(tmp_path / "whole"), weights_of(tmp_path / "run")
    assert all(torch.equal(resumed[name], weight) for name, weight in expected.items())


def test_without_a_checkpoint_it_starts_again(
    train: Train, origin: Path, tiny_data: Path, tmp_path: Path
) -> None:
    """From the same weights only."""
    moved = tmp_path / "origin"
    shutil.copytree(origin, moved, symlinks=True)
    given = (tiny_data, "--init-from", moved, *SHORT, "--out", tmp_path / "run", "--max-steps", 1)
    assert train(*given)[0] == 0
    expected = weights_of(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "best").unlink()
    code, err = train("--resume", tmp_path / "run")
    assert (code, "starting from" in err) == (0, True), err
    assert all(
        torch.equal(weight, expected[name]) for name, weight in weights_of(tmp_path / "run").items()
    )
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace('"step": 2', '"step": 1'))
    code, err = train("--resume", tmp_path / "run")
    assert (code, f"not the checkpoint that {tmp_path / 'run'} was started from" in err) == (
        1,
        True,
    ), err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--init-from", "{origin}", "--d-model", "32"], 2, "--d-model is 16 there, and 32 here"),
        (
            ["--init-from", "{origin}", "--attention", "restricted"],
            2,
            "--attention is full there, and restricted here",
        ),
        (["--init-from", "{tmp}/absent"], 1, "absent: no such directory"),
    ],
)
def test_refusals(
    train: Train,
    origin: Path,
    tiny_data: Path,
    tmp_path: Path,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    filled = [part.format(origin=origin, tmp=tmp_path, data=tiny_data) for part in arguments]
    for more in ((), ("--dry-run",)):
        exit_code, err = train(tiny_data, *filled, *SHORT, "--out", tmp_path / "run", *more)
        assert (exit_code, message in err, "Traceback" in err) == (code, True, False), err
    assert not (tmp_path / "run").exists()


def test_another_origin_is_refused(train: Train, origin: Path, tiny_data: Path) -> None:
    code, err = train(tiny_data, "--init-from", origin, *SHORT, "--out", origin)
    assert (code, "without --init-from" in err) == (2, True), err


def test_other_vocabularies_are_refused(
    train: Train, origin: Path, tiny_data: Path, tmp_path: Path
) -> None:
    prefix = str(tiny_data.parent / "train")
    options = PrepareOptions(out=tmp_path / "data", train=(prefix,), workers=1)
    prepare(options, {"source_lang": "en", "target_lang": "de", "vocab_size": 100})
    code, err = train(tmp_path / "data", "--init-from", origin, *SHORT, "--out", tmp_path / "run")
    assert (code, "source vocabulary" in err) == (1, True), err
    assert f"nmt prepare --subwords-from {checkpoint.locate(origin)}" in err
