"""`nmt tune`, with real trials of a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_run

from nmt_cli.annexes.tune import search
from nmt_cli.annexes.tune.halving import Halving
from nmt_cli.errors import UsageError
from nmt_cli.training.settings import RunOptions
from nmt_cli.training.start import configuration

Nmt = Callable[..., tuple[int, str, str]]


def test_settings_are_found_and_can_be_used(
    nmt: Nmt, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "NUMBERS", (2,))
    out = tmp_path / "tuned"
    words = ["--minutes", 60, "--train-minutes", 5, "--out", out, "--max-epochs", 1]
    for name, value in tiny_run.SIZES.items():
        words += [f"--{name.replace('_', '-')}", value]
    words += ["--dropout", 0, "--batch-tokens", 500, "--device", "cpu"]
    words += ["--sustained-tflops", 1, "--peak-tflops", 1]
    code, table, messages = nmt("tune", tiny_data, *words)
    assert code == 0, messages
    runs = sorted((out / "trials").iterdir())
    assert [run.name for run in runs] == ["1-1", "1-2", "2-1", "2-2"]
    losses = {}
    for run in runs:
        summary = json.loads((run / "summary.json").read_text())
        losses[run.name] = summary["best_validation_loss"]
    means = {name: (losses[f"1-{name}"] + losses[f"2-{name}"]) / 2 for name in "12"}
    best = min(means, key=means.__getitem__)
    assert table.index(f" {best} ") < table.index(f" {'21'[int(best) - 1]} ")
    assert f"{means[best]:.4g}" in table
    assert "peak_learning_rate 0.002" in table
    assert "muon" not in table  # all have it
    chosen = json.loads((out / "chosen.json").read_text())
    trial = json.loads((out / "trials" / f"2-{best}" / "config.json").read_text())
    assert chosen["peak_learning_rate"] == trial["schedule"]["peak_learning_rate"]
    assert chosen["decay_steps"] == chosen["max_steps"]
    config = configuration(RunOptions(config=out / "chosen.json"), {})
    assert config["model"].d_model == 16
    assert chosen["optimizer"] == "muon"
    assert nmt("report", *runs, "--json")[0] == 0
    assert f"--config {out / 'chosen.json'}" in messages
    assert nmt("tune", tiny_data, *words)[1] == table  # nothing is trained again


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "DATA is missing"),
        (["nowhere"], "nowhere"),
        (["DATA", "--minutes", 0.5], "Give more minutes"),
        (["DATA", "--best-by", "rouge"], "rouge"),
        (
            "DATA --preset iwslt14 --dropout 0 --batch-tokens 9 --learning-rate-scale 1".split(),
            "Give fewer flags",
        ),
    ],
)
def test_mistakes(
    nmt: Nmt, tiny_data: Path, tmp_path: Path, words: list[object], message: str
) -> None:
    given = [tiny_data if word == "DATA" else word for word in words]
    code, out, messages = nmt("tune", *given, "--out", tmp_path / "tuned")
    assert code in (1, 2)
    assert out == ""
    assert message in messages
    assert not (tmp_path / "tuned").exists()


@pytest.mark.parametrize("words", [["--preset", "multi30k"], ["--model", "convs2s"]])
def test_a_model_that_is_given_is_trained_as_it_is(
    nmt: Nmt,
    tiny_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    def shown(halving: Halving) -> None:
        raise UsageError(" ".join(halving.candidates["1"]))

    monkeypatch.setattr(Halving, "search", shown)
    _, _, messages = nmt("tune", tiny_data, *words, "--out", tmp_path / "tuned")
    assert "nmt: dropout peak_learning_rate batch_tokens\n" in messages


def test_a_validation_set_is_needed(nmt: Nmt, unvalidated_data: Path, tmp_path: Path) -> None:
    code, _, messages = nmt("tune", unvalidated_data, "--out", tmp_path / "tuned")
    assert code == 2
    assert "--valid PREFIX" in messages
