"""Imported models of Marian's own files compute what Marian 1.12.42 computes.

`tiny/` has two models that it trained, without the optimizer's state: one with a SentencePiece
vocabulary, post-norm and one embedding matrix, and one with vocabularies in YAML, pre-norm and an
output matrix of its own. expected.json has the greedy outputs of the first, and log-probabilities.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from imported_models import Run, check_import, imported, log_probabilities

TINY = Path(__file__).parent / "tiny"
EXAMPLES = json.loads((TINY / "expected.json").read_text("utf-8"))
OPTIONS = ("--source-lang", "en", "--target-lang", "de")
CONFIGURATION = "special:model.yml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "marian"))


@pytest.fixture
def changed(folder: Path) -> Callable[[dict[str, str]], Path]:
    """Writes the first model with other lines in its configuration."""

    def write(lines: dict[str, str]) -> Path:
        with np.load(folder / "model.npz") as archive:
            arrays: dict[str, Any] = dict(archive)
        text = arrays[CONFIGURATION].tobytes().decode().rstrip("\0")
        for old, new in lines.items():
            assert f"\n{old}\n" in f"\n{text}\n"
            text = text.replace(old, new)
        arrays[CONFIGURATION] = np.frombuffer(text.encode() + b"\0", np.int8)
        np.savez(folder / "model.npz", **arrays)
        return folder / "model.npz"

    return write


@pytest.mark.parametrize("name", ["model.npz", "model.npz.decoder.yml"])
def test_a_trained_model_translates_and_scores_as_there(nmt: Run, folder: Path, name: str) -> None:
    check_import(nmt, folder / name, folder / "imported", OPTIONS, EXAMPLES["model"])


def test_pre_norm_and_vocabularies_in_yaml(nmt: Run, folder: Path) -> None:
    model, task = imported(nmt, folder / "pre.npz", *OPTIONS)
    for example in EXAMPLES["pre"]:
        log_probs = log_probabilities(model, task, example["source"], example["output"])
        assert log_probs == pytest.approx(example["log_probabilities"], abs=1e-4)


def test_vocabularies_in_json(nmt: Run, folder: Path) -> None:
    for side in ("en", "de"):
        lines = (folder / f"s.{side}.yml").read_text("utf-8").splitlines()
        ids = {word.strip('"'): int(i) for word, _, i in (line.rpartition(": ") for line in lines)}
        (folder / f"s.{side}.json").write_text(json.dumps(ids), encoding="utf-8")
    decoder = folder / "pre.npz.decoder.yml"
    decoder.write_text(decoder.read_text("utf-8").replace(".yml", ".json"), encoding="utf-8")
    model, task = imported(nmt, decoder, *OPTIONS)
    example = EXAMPLES["pre"][0]
    log_probs = log_probabilities(model, task, example["source"], example["output"])
    assert log_probs == pytest.approx(example["log_probabilities"], abs=1e-4)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("transformer-decoder-autoreg: self-attention", "transformer-decoder-autoreg: rnn"),
        ("type: transformer", "type: s2s"),
        (
            "transformer-train-position-embeddings: false",
            "transformer-train-position-embeddings: true",
        ),
        ("transformer-tied-layers:\n  []", "transformer-tied-layers:\n  - 1"),
        ("transformer-ffn-depth: 2", "transformer-ffn-depth: 3"),
        ("transformer-attention-mask: default", "transformer-attention-mask: alibi"),
        ("lemma-dim-emb: 0", "lemma-dim-emb: 8"),
        ("transformer-postprocess-emb: d", "transformer-postprocess-emb: dn"),
    ],
)
def test_other_models_are_refused_by_name(
    nmt: Run, changed: Callable[[dict[str, str]], Path], old: str, new: str
) -> None:
    path = changed({old: new})
    code, _, err = nmt("import", path, "--out", path.parent / "imported", *OPTIONS)
    assert code == 1
    assert f"{path}: cannot be imported: its {new.partition(':')[0]} is" in err
    assert not (path.parent / "imported").exists()


def test_another_place_of_the_normalisation_is_refused(
    nmt: Run, changed: Callable[[dict[str, str]], Path]
) -> None:
    path = changed({'transformer-preprocess: ""': "transformer-preprocess: n"})
    code, _, err = nmt("import", path, "--out", path.parent / "imported", *OPTIONS)
    assert code == 1
    assert "transformer-postprocess do not have one normalisation" in err


def test_other_weights_are_refused_by_name(nmt: Run, folder: Path) -> None:
    with np.load(folder / "model.npz") as archive:
        np.savez(folder / "model.npz", decoder_l1_rnn_W=np.ones(2, np.float32), **archive)
    code, _, err = nmt("import", folder / "model.npz", "--out", folder / "i", *OPTIONS)
    assert code == 1
    assert "it has decoder.0.rnn_W, which nmt's Transformer does not have" in err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.npz.decoder.yml", None, "model.npz.decoder.yml: cannot read this file"),
        ("vocab.spm", None, "names vocab.spm, which is not a file"),
        ("vocab.spm", b"x", "cannot be imported"),
        ("model.npz", b"x", "model.npz: damaged, or no model of Marian"),
        (
            "model.npz.decoder.yml",
            b"models: [model.npz]",
            "decoder.yml: needs models and two vocabs",
        ),
    ],
)
def test_missing_and_damaged_files_are_named(
    nmt: Run, folder: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    code, _, err = nmt("import", folder / "model.npz", "--out", folder / "i", *OPTIONS)
    assert code in (1, 2)
    assert message in err
    assert "Traceback" not in err


def test_subwords_are_in_the_vocabulary(nmt: Run, folder: Path) -> None:
    flags = (*OPTIONS, "--subwords", folder / "vocab.spm")
    code, _, err = nmt("import", folder / "model.npz", "--out", folder / "i", *flags)
    assert code == 2
    assert "--subwords cannot be used with" in err


@pytest.mark.skipif(find_spec("pymarian") is None, reason="needs pymarian")
def test_marian_itself_gives_the_recorded_outputs(folder: Path) -> None:
    command = [sys.executable, "-m", "pymarian", "decode", "-c", "model.npz.decoder.yml"]
    limits = ["--beam-size", "1", "--cpu-threads", "1", "-w", "200", "--quiet"]
    lines = "".join(f"{example['source']}\n" for example in EXAMPLES["model"])
    outputs = subprocess.run(
        command + limits, cwd=folder, input=lines, capture_output=True, text=True, check=True
    )
    assert outputs.stdout.splitlines() == [example["output"] for example in EXAMPLES["model"]]
