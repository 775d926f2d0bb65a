"""A checkpoint of every schema that was released stays here, and loads, translates and trains on.

schemaN holds a checkpoint as the first release with schema N wrote it, lines, and what they were translated to then.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli import checkpoint, registry
from nmt_cli.decoding.loading import load_translator
from nmt_cli.training import optimizer_state
from nmt_cli.training.state import Progress

SCHEMAS = sorted(Path(__file__).resolve().parent.glob("schema*"))


def test_every_schema_is_here() -> None:
    assert [int(folder.name.removeprefix("schema")) for folder in SCHEMAS] == list(range(1, checkpoint.SCHEMA + 1))
    for folder in SCHEMAS:
        assert sum(path.stat().st_size for path in folder.rglob("*")) < 100_000


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda path: path.name)
def test_it_translates_as_it_did(schema: Path) -> None:
    (folder,) = schema.glob("step-*")
    translator = load_translator([folder], "cpu")
    lines = (schema / "input.txt").read_text(encoding="utf-8").split("\n")[:-1]
    expected = [line.split("\t") for line in (schema / "expected.tsv").read_text(encoding="utf-8").split("\n")[:-1]]
    found = list(translator.translate(lines))
    assert [translation.text for translation in found] == [text for _, text in expected]
    for translation, (score, _) in zip(found, expected, strict=True):
        assert translation.outputs[0].score == pytest.approx(float(score), abs=1e-3)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda path: path.name)
def test_training_goes_on_from_it(schema: Path) -> None:
    (folder,) = schema.glob("step-*")
    registry.discover()
    contents = checkpoint.read_contents(folder)
    model = checkpoint.build_model(contents, str(folder))
    checkpoint.assign_weights(model, checkpoint.load_weights(folder), str(folder))
    state = checkpoint.load_training(folder)
    assert Progress.from_json(state.values["progress"], str(folder)).step == contents.step
    optimizer = torch.optim.Adam(model.parameters())
    optimizer_state.restore(optimizer, state.values["optimizer"], state.tensors, str(folder))
    assert len(optimizer.state) == len(list(model.parameters()))


def test_the_run_of_an_earlier_version_goes_on(
    forks: Any, tiny_data: Path, whole: Path, tmp_path: Path, check_same: Callable[..., None]
) -> None:
    """One from before some settings existed: they are at their defaults, and its checkpoints stay one run."""
    run = tmp_path / "run"
    forks.train(tiny_data, run, "--max-steps", 6).code(0)
    for path in [run / "config.json", *run.glob("checkpoints/*/config.json")]:
        content = json.loads(path.read_text())
        for section in (content.get("sections", content),):
            del section["model"]["attention_dropout"]
            del section["training"]["clip_norm"]
        if "run" in content:
            content["run"] = "as-it-was-then"
        path.unlink()  # the best checkpoint shares the file
        path.write_text(json.dumps(content))
    for folder in run.glob("checkpoints/*"):
        sums = json.loads((folder / "checksums.json").read_text())
        sums["config.json"] = checkpoint._sha256(folder / "config.json")
        (folder / "checksums.json").unlink()
        (folder / "checksums.json").write_text(json.dumps(sums))
    refused = forks.train(tiny_data, run, "--attention-dropout", "0.5")
    refused.code(2)
    assert "--attention-dropout was 0.0, now 0.5" in refused.err
    forks.train(tiny_data, run).code(0)
    ended, undisturbed = (checkpoint.load_weights(checkpoint.resolve(folder)) for folder in (run, whole))
    assert all(torch.equal(ended[name], undisturbed[name]) for name in undisturbed)
    forks.start("average", run, "--last", 3, "--out", run / "averaged").code(0)
    assert checkpoint.read_contents(run / "averaged").run == "as-it-was-then"
