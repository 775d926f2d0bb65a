"""A checkpoint of every schema that was released stays here, and loads, translates and trains on.

schemaN holds a checkpoint as the first release with schema N wrote it, lines, and what they were translated to then.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nmt_cli import checkpoint, registry
from nmt_cli.decoding.loading import load_translator
from nmt_cli.training import optimizer_state
from nmt_cli.training.progress import Progress

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
